"""The page of a measurement: its figures laid out for a reader who sees them for the first time."""

from collections.abc import Mapping
from typing import Any

from spectool.measure.fairness.formulas import reach
from spectool.measure.fairness.verdict import PLAIN, Speed, speed_of, speeds
from spectool.measure.report.page import Figure, Section, Table

TITLE = "Who is served how well"
_NONE = "—"
_COMPARED = {
    "one vocabulary": "One vocabulary: over all ids, at all places of the text.",
    "text": "Another tokenizer, and no alignment was given: on text alone. Bits per byte can be compared across "
    "tokenizers; acceptance, divergence and speed-up are not known. Make an alignment with spectool align to have "
    "them.",
}


def sections(figures: Mapping[str, Any], drawings: Mapping[str, Figure]) -> list[Section]:
    """Return the page's parts.

    Args:
        figures: As `artifacts.fairness` describes them.
        drawings: From `plots`, by name; none where matplotlib is missing.
    """
    return [
        Section(
            "In short",
            [figures["verdict"]["sentence"], _assumed(figures)],
            [_ways(figures), *_drawn(drawings, "speedup")],
        ),
        *(_draft(figures, name, drawings) for name in figures["drafts"]),
        _fertility(figures),
        *([_dictionaries(figures)] if figures["dictionaries"] else []),
        _texts(figures),
    ]


def _assumed(figures: Mapping[str, Any]) -> str:
    return (
        f"Speeds are expected ones against plain decoding, at {figures['gamma']} draft tokens a pass, and hold that a "
        "pass over draft tokens costs what a pass over one token costs. Drafts are drawn from the draft model and "
        "judged by rejection sampling at temperature 1. Dictionaries are replayed, with the text in the target's "
        "place, and their look-ups cost nothing. Seconds are what spectool bench measures."
    )


def _ways(figures: Mapping[str, Any]) -> Table:
    tasks = list(figures["tasks"])
    by_task = {task: speeds(figures, task) for task in tasks}
    rows = []
    for name in (PLAIN, *figures["drafts"], *figures["dictionaries"]):
        kind = "" if name == PLAIN else " (dictionary)" if name in figures["dictionaries"] else " (draft)"
        found = [by_task[task].get(name) for task in tasks]
        rows.append([name + kind, *(_NONE if speed is None else _with_error(speed) for speed in found)])
    return Table(
        "Expected speed against plain decoding, with half the width of its 95% interval. — was not measured, or is a "
        "dictionary built from the very text that was replayed.",
        ["", *tasks],
        rows,
    )


def _draft(figures: Mapping[str, Any], name: str, drawings: Mapping[str, Figure]) -> Section:
    draft, target = figures["drafts"][name], figures["target"]
    how = _COMPARED.get(draft["compared"]) or (
        f"Another tokenizer: compared through {draft['shared_ids']:,} ids that both have, where both have a boundary. "
        "Acceptance and fitness are those of drafting from these ids alone (strategy intersection), over "
        "the target's whole vocabulary; D and KL are over the shared ids, renormalised: over all of the target's "
        "they are infinite, so Theorem 1 bounds nothing."
    )
    text = [how]
    parts: list[Table | Figure] = []
    if draft["compared"] != "text":
        text += [
            f"A pass of the draft is taken to cost {draft['cost']:.3g} passes of the target, "
            f"{'as stated' if draft['cost_stated'] else 'the ratio of the bytes of their weights'}. Unfairness U, the "
            f"mean of (D - least D)², is {draft['unfairness']:.4g} nats²; of KL in place of D, which leaves out how "
            f"sure the target itself is in each language, it is {draft['unfairness_kl']:.4g}.",
        ]
        parts = [_acceptance(draft, figures["gamma"]), _bounds(draft), *_drawn(drawings, f"fitness-{name}")]
        if odd := [t for t, at in draft["tasks"].items() if at["target_misfit"] > at["draft_misfit"]]:
            text.append(
                f"The draft fits the text better than the target does: {', '.join(odd)}. Theorem 2 assumes otherwise, "
                "though its proof holds; the fitness of a draft says little of its acceptance there."
            )
    rows = [
        [
            task,
            f"{at['bits_per_byte']:.3f}",
            f"{figures['tasks'][task]['bits_per_byte']:.3f}",
            f"{at['bits_per_byte'] / figures['tasks'][task]['bits_per_byte']:.2f}",
            f"{at['nats_per_token']:.2f}",
        ]
        for task, at in draft["tasks"].items()
    ]
    caption = (
        f"How well the models know the text: bits for every UTF-8 byte. Compare them along a row; scripts differ in "
        f"bytes per letter. The target is {target['name']}."
    )
    header = ["", "draft, bits per byte", "target, bits per byte", "draft / target", "draft, nats per token"]
    return Section(f"Draft {name}", text, [*parts, Table(caption, header, rows)])


def _acceptance(draft: Mapping[str, Any], gamma: int) -> Table:
    rows = [
        [
            task,
            f"{at['acceptance']:.1%} ± {reach(at['rows'] - 1) * at['acceptance_error']:.1%}",
            f"{at['cross_entropy']:.3f}",
            f"{at['kl']:.3f}",
            f"{at['tokens_per_pass']:.2f}",
            _with_error(speed_of(at)),
            f"{at['speedup_by_place']:.2f}",
            f"{at['places']:,} ({at['share']:.0%})",
        ]
        for task, at in draft["tasks"].items()
    ]
    return Table(
        "Acceptance alpha is the mean of sum min(p, q), with half the width of its 95% interval; D and KL are the "
        "cross-entropy and the divergence of the draft from the target, nats. "
        f"Tokens a pass are 1 + alpha + … + alpha^{gamma}. Speed-up by place is the mean of every place's own (Eq. 4 "
        "of the paper), which takes the acceptance of a place to hold for all that follows.",
        ["", "alpha", "D", "KL", "tokens a pass", "speed-up", "by place", "places"],
        rows,
    )


def _bounds(draft: Mapping[str, Any]) -> Table:
    rows = []
    for task, at in draft["tasks"].items():
        fitness = 1 - at["draft_misfit"]
        lower = (at["bounds"].get(name) for name in ("kl", "cross_entropy", "fitness"))
        rows.append(
            [
                task,
                f"{fitness:.1%}",
                f"{1 - at['target_misfit']:.1%}",
                f"{abs(at['acceptance'] - fitness):.1%} ≤ {at['target_misfit']:.1%}",
                f"{at['speedup']:.2f}",
                *(_NONE if bound is None else f"{bound['speedup']:.2f}" for bound in lower),
            ]
        )
    return Table(
        "Fitness of a model is the mean probability that it gives to the text's own next token (1 - r). |alpha - (1 - "
        "r_q)| is at most r_p (Theorem 2). The speed-up is at least what follows from KL or from D (Theorem 1), and "
        "from fitness (Theorem 2). KL or D of 2 nats and more bound nothing: what stands there is the speed of a draft "
        "that is always wrong.",
        [
            *("", "draft fitness", "target fitness", "|alpha - (1 - r_q)| ≤ r_p", "speed-up"),
            *("at least, by KL", "by D", "by fitness"),
        ],
        rows,
    )


def _fertility(figures: Mapping[str, Any]) -> Section:
    found = figures["fertility"]
    tasks = list(figures["tasks"])
    whom = "the task that the tokenizer serves best" if found["reference"] is None else found["reference"]
    what = "tokens over those of" if found["parallel"] else "fertility over that of"
    said = "for the same content" if found["parallel"] else "which compares words, however long a language's are"
    rows = [
        [name, *(f"{by_task[task]['fertility']:.2f} ({by_task[task]['tax']:.2f})" for task in tasks)]
        for name, by_task in found["tokenizers"].items()
    ]
    parts = [Table("Fertility, and the tokenization tax in brackets, by tokenizer.", ["", *tasks], rows)]
    text = [f"Fertility is tokens per word between white space. The tax is {what} {whom}, {said}."]
    main = figures["verdict"]["draft"]
    if figures["drafts"][main]["compared"] != "text" and not found["parallel"]:
        rates = {task: at["fertility"] for task, at in found["tokenizers"]["target"].items()}
        rows = [
            [task, f"{rates[task]:.2f}", f"{rates[task] / speeds(figures, task)[main].value:.2f}"] for task in tasks
        ]
        parts.append(
            Table(
                f"What a word costs, in plain passes of the target: slow drafting comes on top of the tax. Drafting is "
                f"with {main}.",
                ["", "plain", "with the draft"],
                rows,
            )
        )
    return Section("Fertility", text, parts)


def _dictionaries(figures: Mapping[str, Any]) -> Section:
    tasks = list(figures["tasks"])
    rows = [
        [
            name,
            *(
                f"{at['tokens_per_pass']:.2f} ({at['coverage']:.0%}, {at['acceptance']:.0%})"
                + ("*" if at["built_from_it"] else "")
                for at in (dictionary["tasks"][task] for task in tasks)
            ),
        ]
        for name, dictionary in figures["dictionaries"].items()
    ]
    caption = (
        "Tokens a pass; in brackets the share of passes with a proposal, and the acceptance rate of what it proposed."
    )
    if any(at["built_from_it"] for d in figures["dictionaries"].values() for at in d["tasks"].values()):
        caption += " * was built from the text that was replayed, which tells nothing."
    text = [
        "The passages are replayed in the target's place, each by itself. A proposal is as long as the dictionary can "
        f"go on, at most {figures['gamma']} tokens."
    ]
    return Section("Dictionaries", text, [Table(caption, ["", *tasks], rows)])


def _texts(figures: Mapping[str, Any]) -> Section:
    rows = [
        [
            *(task, f"{at['documents']:,}", f"{at['words']:,}", f"{at['rows']:,}", f"{at['tokens']:,}"),
            f"{at['left_out']:,}",
        ]
        for task, at in figures["tasks"].items()
    ]
    caption = (
        "Fertility is counted on the documents, all else on the rows: passages of them, the same ones for all models. "
        "Those that some tokenizer does not spell byte by byte are left out."
    )
    return Section("Text", (), [Table(caption, ["", "documents", "words", "rows", "tokens", "left out"], rows)])


def _drawn(drawings: Mapping[str, Figure], name: str) -> list[Figure]:
    return [drawings[name]] if name in drawings else []


def _with_error(speed: Speed) -> str:
    return f"{speed.value:.2f} ± {speed.reach:.2f}" if speed.error else f"{speed.value:.2f}"
