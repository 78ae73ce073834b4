"""The tables of docs/tables.md, each a function that its text calls."""

from typing import Any

import pandas as pd
from markdown_tables import saved, table, with_interval

FIVE_MB = 5_000_000
SHORT_NAMES = {
    "bielik-4.5b-v3-apt4": "APT4",
    "bielik-11b-v2.5": "Bielik 11B",
    "qwen2.5": "Qwen 2.5",
    "llama-3.2": "Llama 3.2",
}


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
            for r in saved("least_gain").rename(columns={"tokens per pass": "curve"}).itertuples()
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
            (_pair(r), r.language, *(f"{side[share]:.1%}" for side in (r.ours, r.theirs) for share in shares))
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
                _pair(r),
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
            (_pair(r), f"{r.frontiers:,}", f"{r.moved:,.0f}", f"{r.views:,}", f"{r.split:,.0f}", f"{r.free:,}")
            for r in rows.rename(columns={"moved frontiers": "moved", "split views": "split", "string-free": "free"})
            .fillna({"moved": 0, "split": 0})
            .itertuples()
        ),
    )


def conformance() -> str:
    """Tokenizers that nobody chose: how their ids are joined, and what was compared with whole-string encoding."""
    pairs = saved("conformance_pairs").fillna(0)
    parts = []
    tokenizers = saved("conformance_tokenizers").rename(columns={"wrong joins": "wrong_joins"})
    tokenizers = tokenizers.fillna({"joins": 0, "wrong_joins": 0, "kind": "", "directory": ""})
    for r in tokenizers.itertuples():
        towards, of_it = pairs[pairs.target == r.tokenizer], pairs[pairs.draft == r.tokenizer]
        kinds = {"mismatches": towards, "byte mismatches": towards}
        kinds |= {"view mismatches": of_it, "split view mismatches": of_it}
        wrong = sum(rows[kind].sum() for kind, rows in kinds.items() if kind in rows) + getattr(r, "wrong_joins", 0)
        how = "ids" if r.how == "ids" else "refused" if r.how.startswith("refused") else "text"
        counts = (r.joins, towards.frontiers.sum(), of_it.views.sum(), 0 if how == "text" else wrong)
        parts.append((r.tokenizer, r.kind, r.directory, how, *(f"{int(count):,}" for count in counts)))
    return table(("tokenizer", "kind", "directory", "joined by", "joins", "frontiers", "views", "mismatches"), parts)


def starts() -> str:
    """What a start adds to loading the model: processor seconds and private memory of each step."""
    steps = {"dictionary": "dictionary", "alignment": "alignment", "pair": "both"}
    rows = saved("startup")
    parts = []
    for (draft, target), group in rows.groupby(["draft", "target"], sort=False):
        found = group[group.step.isin([*steps, "shared"])].set_index(["label", "step"])
        cells = [_start(found, label, step) for step in steps for label in ("before", "now")]
        if any(cells):
            parts.append((f"{draft} → {target}", *cells, _start(found, "now", "shared")))
    heads = (f"{name}, {label}" for name in steps.values() for label in ("before", "now"))
    return table(("draft → target", *heads, "each of four, private and PSS"), parts)


def _start(found: "pd.DataFrame", label: str, step: str) -> str:
    if (label, step) not in found.index:
        return ""
    row = found.loc[(label, step)]
    if step == "shared":
        return f"{row.private_mb:.1f} MB, {row.share_mb:.1f} MB"
    return f"{row.cpu_s:.2f} s, {row.private_mb:.1f} MB"


def commands() -> str:
    """Processor seconds of whole commands, before and now."""
    rows = saved("startup")
    rows = rows[rows.peak_mb.notna()]
    found = rows.set_index(["draft", "target", "step", "label"]).cpu_s
    steps = rows.step.unique()
    parts = []
    for draft, target in rows[["draft", "target"]].drop_duplicates().itertuples(index=False):
        times = ([found.get((draft, target, step, label)) for label in ("before", "now")] for step in steps)
        parts.append(
            (f"{draft} → {target}", *(" / ".join(f"{s:.2f}" for s in both if s is not None) for both in times))
        )
    return table(("draft → target", *steps), parts)


def prompts() -> str:
    """Processor seconds that drafters spend on a prompt, by its length."""
    rows = saved("startup")
    rows = rows[rows.tokens.notna()]
    wide = rows.pivot_table(index="tokens", columns=["step", "label"], values="cpu_s")
    heads = (f"{step.removeprefix('prompt ')}, {label}" for step, label in wide.columns)
    parts = ((f"{int(tokens):,}", *(f"{seconds:.3f}" for seconds in row)) for tokens, *row in wide.itertuples())
    return table(("tokens", *heads), parts)


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


def cross_sampling() -> str:
    """Drafts of another tokenizer above temperature 0: greedy ones by exact match beside both rules for drawn ones."""
    rows = saved("cross_sampling").rename(columns={"first, shared boundaries": "shared", "tokens per pass": "passes"})
    rows = rows.query("not draft.str.contains('bits') and tokens > 128")  # as many are of an earlier version
    lines = []
    for (draft, target, held, temperature, language), group in rows.assign(held=rows["held out"] == 1).groupby(
        ["draft", "target", "held", "temperature", "language"]
    ):
        by_rule = {row.rule: row for row in group.drop_duplicates("rule", keep="last").itertuples()}
        exact, alone, block = (by_rule.get(rule) for rule in ("exact match, greedy", "rejection 1.0", "block 1.0"))
        firsts = [("held-out" if held else "its own", exact.first, alone.first)]
        if held and exact.shared == exact.shared:
            firsts.append(("held-out, boundaries of both", exact.shared, alone.shared))
        for text, one, other in firsts:
            sides = [] if held else [side for side in (exact, alone, block) if side is not None]
            cells = [with_interval(side.passes) for side in sides] + ["–"] * (3 - len(sides))
            ratio = f"{sides[-1].passes[0] / exact.passes[0]:.2f}" if sides else "–"
            chances = f"{one:.3f}", f"{other:.3f}", f"{other / one:.2f}"
            pair = f"{draft} → {target}"
            lines.append((pair, text, f"{temperature:.1f}", language, exact.tokens, *chances, *cells, ratio))
    head = ["pair", "text", "temperature", "language", "tokens"]
    head += ["first, exact match", "first, rejection", "ratio"]
    return table([*head, "exact match", "token by token", "as a block", "ratio"], lines)


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


def _pair(row: Any) -> str:
    """Return ``draft → target``."""
    return f"{SHORT_NAMES.get(row.draft, row.draft)} → {SHORT_NAMES.get(row.target, row.target)}"
