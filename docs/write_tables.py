"""Write docs/tables.md and docs/real-models.md: tables of measurements, drawn from the runs in benchmarks/results.

    python docs/write_tables.py

``docs/NAME.md.j2`` has the text of a page and says where each table goes; a function here makes each.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
PAGES = "tables", "real-models"
FIVE_MB = 5_000_000
SHORT_NAMES = {
    "bielik-4.5b-v3-apt4": "APT4",
    "bielik-11b-v2.5": "Bielik 11B",
    "qwen2.5": "Qwen 2.5",
    "llama-3.2": "Llama 3.2",
}


def saved(name: str) -> pd.DataFrame:
    """Return the saved rows of a benchmark."""
    parquet = RESULTS / f"{name}.parquet"
    return pd.read_parquet(parquet) if parquet.exists() else pd.read_json(RESULTS / f"{name}.jsonl", lines=True)


def table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a Markdown table; numbers stand on the right."""
    rows = [["" if cell is None or cell != cell else cell for cell in row] for row in rows]
    numeric = [
        all(isinstance(row[i], int | float) or str(row[i])[:1].isdigit() for row in rows) for i in range(len(rows[0]))
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "".join("---:|" if right else "---|" for right in numeric)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def pair(row: Any) -> str:
    """Return ``draft → target``."""
    return f"{SHORT_NAMES.get(row.draft, row.draft)} → {SHORT_NAMES.get(row.target, row.target)}"


def grid() -> str:
    """Best tokens per pass of each kind of dictionary, by language and tokenizer."""
    paper, ours = saved("sweep_paper"), saved("sweep_backoff")
    kinds = {
        "DictSpec, whole": paper.query("reading == 'whole'"),
        "DictSpec, path": paper.query("reading == 'path'"),
        "backoff, 1 MB": ours.query("max_bytes == 1_000_000"),
        "backoff, 5 MB": ours.query("max_bytes == @FIVE_MB"),
        "backoff, 5 MB, from 0.2": ours.query("max_bytes == @FIVE_MB and min_prob == 0.2"),
    }
    keys = ["language", "tokenizer"]
    best = {name: rows.groupby(keys).tokens_per_pass.max() for name, rows in kinds.items()}
    fertility = ours.groupby(keys).fertility.first()
    rows = ((*key, f"{fertility[key]:.2f}", *(f"{best[name][key]:.3f}" for name in kinds)) for key in fertility.index)
    return table(("language", "tokenizer", "tokens per word", *kinds), rows)


def dictspec(language: str) -> str:
    """Single DictSpec dictionaries of a language."""
    rows = saved("dictspec").query("language == @language and min_probability == 0.2")
    head = (
        "tokenizer",
        "n-grams",
        "minimum of",
        "stored",
        "MB",
        "tokens per pass",
        "coverage",
        "accepted length",
        "acceptance",
    )
    return table(
        head,
        (
            (
                r.tokenizer,
                f"{r.entries:,}",
                r.reading,
                f"{r.stored:,}",
                f"{r.bytes / 1000000.0:.2f}",
                f"{r.tokens_per_pass:.3f}",
                f"{r.coverage:.2f}",
                f"{r.mean_accepted_length:.2f}",
                f"{r.acceptance:.2f}",
            )
            for r in rows.itertuples()
        ),
    )


def peers() -> str:
    """The best setting of each kind of drafter on the same text."""
    rows = saved("peers")
    rows["kind"] = rows.drafter.str.extract(
        r"^(backoff|dictspec[^,]*, (?:whole|path)|dictspec|suffix[^,]*|arctic[^,]*)", expand=False
    )
    rows["kind"] = rows.kind.fillna(rows.drafter.str.split(",").str[0])
    rows["history"] = rows.drafter.str.contains("history")
    best = rows.groupby(["tokenizer", "language", "history", "kind"])["tokens per pass"].max().unstack()
    return table(
        ("tokenizer", "text", "history", *best.columns),
        (
            (tokenizer, language, "yes" if history else "no", *(f"{value:.3f}" for value in values))
            for (tokenizer, language, history), values in zip(best.index, best.to_numpy(), strict=True)
        ),
    )


def backoff_choices() -> str:
    """What each choice of the backoff method gains, without a threshold."""
    rows = saved("backoff_choices")
    first = rows.iloc[0].curve["0.0"][0]
    return table(
        ("choice", "entries", "tokens per pass", "difference"),
        (
            (r.choice, f"{r.entries:,}", f"{(v := r.curve['0.0'][0]):.3f}", f"{v - first:+.3f}")
            for r in rows.itertuples()
        ),
    )


def least() -> str:
    """The least expected gain of an entry that is kept."""
    return table(
        ("language", "least gain", "entries", "MB", "from 0", "from 0.2", "from 0.4"),
        (
            (r.language, r.least, f"{r.entries:,}", f"{r.bytes / 1e6:.2f}", *(f"{t:.3f} ({a:.1%})" for t, a in r.curve))
            for r in saved("least_worth").rename(columns={"tokens per pass": "curve"}).itertuples()
        ),
    )


def draft_tree() -> str:
    """Chains and trees of the same number of tokens."""
    rows = saved("draft_tree").query("proposal in ('chain', 'tree')")
    wide = rows.pivot(index="nodes", columns=["language", "proposal"], values="tokens per pass")
    head = ("verified tokens", *(f"{language}, {proposal}" for language, proposal in wide.columns))
    return table(
        head, ((n, *(f"{v:.3f}" for v in values)) for n, values in zip(wide.index, wide.to_numpy(), strict=True))
    )


def intersection() -> str:
    """Shares of ids and of tokens in text that both tokenizers have."""
    rows = saved("alignments").rename(columns={"draft coverage": "ours", "target coverage": "theirs"})
    shares = ("by_vocabulary", "by_occurrence")
    return table(
        ("draft → target", "text", "draft ids", "draft tokens", "target ids", "target tokens"),
        (
            (pair(r), r.language, *(f"{side[share]:.1%}" for side in (r.ours, r.theirs) for share in shares))
            for r in rows.itertuples()
        ),
    )


def ceilings() -> str:
    """Merge sites, absorption, and what a perfect draft of k tokens reaches."""
    return table(
        (
            "draft → target",
            "text",
            "merge sites",
            "tail",
            "head",
            "k = 2",
            "k = 4",
            "k = 8",
            "context, 4",
            "intersection, 4",
        ),
        (
            (
                pair(r),
                r.language,
                f"{r.draft_to_target['merge_sites']:.1%}" if "merge_sites" in r.draft_to_target else None,
                f"{r.absorption['tail']:.1%}",
                f"{r.absorption['head']:.1%}",
                *tuple(f"{r.ceiling['anchored'][k]:.2f}" for k in ("2", "4", "8")),
                f"{r.ceiling['context']['4']:.2f}",
                f"{r.ceiling['intersection']['4']:.2f}",
            )
            for r in saved("alignments").itertuples()
        ),
    )


def frontiers() -> str:
    """Frontiers compared with the tokenizer's own encoding."""
    rows = saved("frontiers")
    return table(
        ("draft → target", "frontiers", "moved", "views", "split views", "string-free"),
        (
            (pair(r), f"{r.frontiers:,}", f"{r.moved:,.0f}", f"{r.views:,}", f"{r.split:,.0f}", f"{r.free:,}")
            for r in rows.rename(columns={"moved frontiers": "moved", "split views": "split", "string-free": "free"})
            .fillna({"moved": 0, "split": 0})
            .itertuples()
        ),
    )


def conformance() -> str:
    """Tokenizers that nobody chose: how their ids are joined, and what was compared with whole-string encoding."""
    pairs = saved("conformance_pairs").fillna(0)
    parts = []
    tokenizers = saved("conformance_tokenizers").fillna({"joins": 0, "kind": "", "directory": ""})
    for r in tokenizers.itertuples():
        towards, of_it = pairs[pairs.target == r.tokenizer], pairs[pairs.draft == r.tokenizer]
        found = ((towards, "mismatches"), (towards, "byte mismatches"), (of_it, "view mismatches"))
        wrong = sum(rows[kind].sum() for rows, kind in found if kind in rows)
        how = "ids" if r.how == "ids" else "refused" if r.how.startswith("refused") else "text"
        counts = (r.joins, towards.frontiers.sum(), of_it.views.sum(), 0 if how == "text" else wrong)
        parts.append((r.tokenizer, r.kind, r.directory, how, *(f"{int(count):,}" for count in counts)))
    return table(("tokenizer", "kind", "directory", "joined by", "joins", "frontiers", "views", "mismatches"), parts)


def ladder() -> str:
    """Tokens per pass of each strategy with toy drafts; gain over context's in brackets."""
    rows = saved("ladder").drop_duplicates(["draft", "model", "target", "language", "tokens", "strategy"], keep="last")
    keys = ["draft", "target", "language", "model", "tokens"]
    columns = {key: group.set_index("strategy")["tokens per pass"] for key, group in rows.groupby(keys, sort=False)}
    heads = [
        f"{SHORT_NAMES.get(k[0], k[0])} → {SHORT_NAMES.get(k[1], k[1])}, {k[2]}, {k[3]}, {k[4]:,} tokens"
        for k in columns
    ]

    def cell(values: "pd.Series[float]", strategy: str) -> str:
        if strategy not in values:
            return "–"
        gain = f" ({(values[strategy] - 1) / (values['context'] - 1):.2f})" if "context" in values else ""
        return f"{values[strategy]:.3f}{gain}"

    strategies = rows.strategy.unique()
    return table(("strategy", *heads), ((s, *(cell(values, s) for values in columns.values())) for s in strategies))


def real_ladder() -> str:
    """Tokens per pass of each strategy with pretrained drafts, and gain over context's, with intervals."""
    rows = saved("real_ladder").rename(
        columns={"tokens per pass": "tpp", "gain / context's": "gain", "repeated 4-grams": "circles"}
    )
    parts = []
    for (draft, target, language, temperature), group in rows.groupby(
        ["draft", "target", "language", "temperature"], sort=False, dropna=False
    ):
        first = group.iloc[0]
        text = "held-out text" if temperature != temperature else f"its own text at temperature {temperature:g}"
        parts.append(
            f"**{draft} → {target}**, {language}, {text}: {first.tokens:,} tokens of {first.prompts} prompts, "
            f"{first.circles:.0%} repeated 4-grams.\n"
        )
        wide = group.drop_duplicates(["k", "strategy"], keep="last")
        cells = {(r.k, r.strategy): _with_interval(r.tpp, r.gain) for r in wide.itertuples()}
        lengths = sorted(wide.k.unique())
        lines = ((s, *(cells.get((k, s), "–") for k in lengths)) for s in wide.strategy.unique())
        parts.append(table(("strategy", *(f"k = {k}" for k in lengths)), lines) + "\n")
    return "\n".join(parts)


def _with_interval(value: list[float], gain: Any = None) -> str:
    ratio = f"; {gain[0]:.2f}" if isinstance(gain, list) else ""
    return f"{value[0]:.2f} ({value[1]:.2f}–{value[2]:.2f}{ratio})"


def real_drafters() -> str:
    """Tokens per pass of each look-up drafter on text of real models, with intervals."""
    rows = saved("real_drafters").rename(columns={"tokens per pass": "tpp", "repeated 4-grams": "circles"})
    keys = ["model", "language", "temperature", "penalty"]
    rows = rows.drop_duplicates([*keys, "k", "drafter"], keep="last")
    names = rows.drafter.unique()
    lines = []
    for (model, language, temperature, penalty), group in rows.groupby(keys, sort=False, dropna=False):
        cells = {r.drafter: _with_interval(r.tpp) for r in group.itertuples()}
        setting = f"{temperature:g}" + ("" if penalty != penalty else f", penalty {penalty:g}")
        lines.append((model, language, setting, f"{group.iloc[0].circles:.0%}", *(cells.get(n, "–") for n in names)))
    return table(("model", "text", "temperature", "repeated", *names), lines)


def real_speed() -> str:
    """Speed over plain decoding of every way of drafting with real models."""
    rows = saved("real_speed")
    keys = ["target", "language", "temperature", "tokens", "plain ms a token"]
    parts = []
    for (target, language, temperature, tokens, plain), group in rows.groupby(keys, sort=False):
        first = group.iloc[0]
        sizes, costs = (listed(side) for side in zip(*first["pass cost"].items(), strict=True))
        parts.append(
            f"**{target}**, {language}, temperature {temperature:g}: {first.prompts} answers of {tokens} tokens, "
            f"{first['repeated 4-grams']:.0%} repeated 4-grams. A plain token takes {plain / 1000:.2f} s. "
            f"Passes over {sizes} tokens cost {costs} plain ones.\n"
        )
        lines = (
            (r.way, f"{r.speed:.2f} ({r.quartiles[0]:.2f}–{r.quartiles[1]:.2f})", *map(_blank, (r.tpp, r.acceptance)))
            for r in group.rename(columns={"tokens per pass": "tpp"}).itertuples()
        )
        parts.append(table(("way", "speed", "tokens per pass", "acceptance"), lines) + "\n")
    return "\n".join(parts)


def exact_rows() -> str:
    """Tokens whose logits change with the tokens of a pass, by precision."""
    rows = saved("exact_rows").drop_duplicates(["model", "precision", "blas", "rows"], keep="last")
    head = (
        "model",
        "precision",
        "BLAS",
        "tokens",
        "same bits",
        "turned round",
        "widest gap",
        "padded: same bits",
        "padded: turned round",
        "cost",
    )
    columns = (
        "model",
        "precision",
        "blas",
        "tokens",
        "same bits",
        "turned round",
        "widest gap",
        "padded: same bits",
        "padded: turned round",
        "cost of a padded pass",
    )
    return table(head, rows[list(columns)].itertuples(index=False))


def listed(values: Iterable[Any]) -> str:
    """Return ``a, b and c``."""
    *others, last = map(str, values)
    return f"{', '.join(others)} and {last}"


def _blank(value: Any) -> Any:
    return "–" if value == "" or value != value else f"{value:.2f}"


def hybrid_order() -> str:
    """Speed in target passes of look-up, model and hybrid, at two costs of a draft pass."""
    rows = saved("hybrid_order")
    parts = []
    for (recipe, draft, language, text), group in rows.groupby(["recipe", "draft", "language", "text"], sort=False):
        by = {r.way: r for r in group.itertuples()}
        alone, model = by["look-up"], by["model, 2"]
        parts.append(
            (
                f"{recipe}, {draft}",
                f"{language}, {text}",
                f"{alone.speed['0.05']:.3f}",
                *tuple(f"{s[c]:.3f}" for c in ("0.05", "0.2") for s in (model.speed, by[f"expected gain, {c}"].speed)),
            )
        )
    return table(("draft", "text", "look-up", "model, 0.05", "hybrid, 0.05", "model, 0.2", "hybrid, 0.2"), parts)


def models() -> str:
    """Small models that are trained here."""
    rows = saved("models").drop_duplicates(["recipe", "model"], keep="last")
    return table(
        ("recipe", "model", "tokenizer", "parameters", "tokens", "minutes", "bits per byte"),
        (
            (
                r.recipe,
                r.model,
                r.tokenizer,
                f"{r.parameters['trained'] / 1000000.0:.2f} M",
                f"{r.tokens / 1000000.0:.1f} M",
                f"{r.seconds / 60:.1f}",
                ", ".join(f"{k} {v:.3f}" for k, v in r.bits_per_byte.items() if v == v),
            )
            for r in rows.itertuples()
        ),
    )


def s_cdf() -> str:
    """Divergence and acceptance of each language before and after tuning."""
    rows = saved("s_cdf")
    tasks = [entry["task"] for entry in rows.iloc[0].before if entry["task"] in ("pl", "uk", "crh")]

    def line(name: str, entries: list[dict[str, Any]]) -> tuple[str, ...]:
        by = {entry["task"]: entry for entry in entries}
        return (name, *(f"{by[t]['divergence']:.3f}, {by[t]['acceptance']:.1%}" for t in tasks))

    lines = [line("before", rows.iloc[0].before)]
    lines += [line(f"{r.objective}, seed {r.seed}", r.after) for r in rows.itertuples()]
    return table(("draft", *(f"{task}: nats, accepted" for task in tasks)), lines)


def near_ties() -> str:
    """Near-ties over tokens compared, by kind of cache and precision."""
    rows = saved("lossless").drop_duplicates(
        ["language", "cache", "precision", "drafter", "prompts", "tokens"], keep="last"
    )
    sums = rows.groupby(["cache", "precision"], sort=False)[["near-ties", "compared", "errors"]].sum()
    assert not sums.errors.any()
    precisions = ["float32", "bfloat16", "8", "4"]
    caches = sums.index.get_level_values("cache").unique()
    return table(
        ("cache", *(f"{p}-bit" if p.isdigit() else p for p in precisions)),
        (
            (c, *(f"{sums.loc[(c, p), 'near-ties']} / {sums.loc[(c, p), 'compared']:,}" for p in precisions))
            for c in caches
        ),
    )


FUNCTIONS: tuple[Callable[..., str], ...] = (
    grid,
    dictspec,
    peers,
    backoff_choices,
    least,
    draft_tree,
    intersection,
    ceilings,
    frontiers,
    conformance,
    ladder,
    real_ladder,
    real_drafters,
    real_speed,
    exact_rows,
    hybrid_order,
    models,
    s_cdf,
    near_ties,
)


def page(name: str) -> str:
    """Return a page."""
    template = (HERE / f"{name}.md.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    return environment.from_string(template).render({function.__name__: function for function in FUNCTIONS})


if __name__ == "__main__":
    for name in PAGES:
        (HERE / f"{name}.md").write_text(page(name), encoding="utf-8")
        print(HERE / f"{name}.md")
