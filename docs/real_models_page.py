"""The tables of docs/real-models.md, each a function that its text calls."""

from collections.abc import Iterable
from typing import Any

from markdown_tables import saved, table, with_interval


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
        cells = {(r.k, r.strategy): with_interval(r.tpp, r.gain) for r in wide.itertuples()}
        lengths = sorted(wide.k.unique())
        lines = ((s, *(cells.get((k, s), "–") for k in lengths)) for s in wide.strategy.unique())
        parts.append(table(("strategy", *(f"k = {k}" for k in lengths)), lines) + "\n")
    return "\n".join(parts)


def real_drafters() -> str:
    """Tokens per pass of each look-up drafter on text of real models, with intervals."""
    rows = saved("real_drafters").rename(columns={"tokens per pass": "tpp", "repeated 4-grams": "circles"})
    keys = ["model", "language", "temperature", "penalty"]
    rows = rows.drop_duplicates([*keys, "k", "drafter"], keep="last")
    names = rows.drafter.unique()
    lines = []
    for (model, language, temperature, penalty), group in rows.groupby(keys, dropna=False):
        cells = {r.drafter: with_interval(r.tpp) for r in group.itertuples()}
        setting = f"{temperature:g}" + ("" if penalty != penalty else f", penalty {penalty:g}")
        lines.append((model, language, setting, f"{group.iloc[0].circles:.0%}", *(cells.get(n, "–") for n in names)))
    return table(("model", "text", "temperature", "repeated", *names), lines)


def real_speed() -> str:
    """Speed of every configuration over plain decoding, with real models."""
    rows = saved("real_speed")
    parts = []
    for (target, language, temperature, tokens), group in rows.groupby(
        ["target", "language", "temperature", "tokens"], sort=False
    ):
        first = group.iloc[-1]
        plain = first["plain ms a token"]
        group = group[group["plain ms a token"] == plain]  # the latest run
        sizes, costs = (_listed(side) for side in zip(*first["pass cost"].items(), strict=True))
        parts.append(
            f"**{target}**, {language}, temperature {temperature:g}: {first.prompts} answers of {tokens} tokens, "
            f"{first['repeated 4-grams']:.0%} repeated 4-grams. A plain token takes {plain / 1000:.2f} s. "
            f"Passes over {sizes} tokens cost {costs} plain ones.\n"
        )
        lines = (
            (r.way, f"{r.speed:.2f} ({r.quartiles[0]:.2f}–{r.quartiles[1]:.2f})", *map(_blank, (r.tpp, r.acceptance)))
            for r in group.rename(columns={"tokens per pass": "tpp"}).itertuples()
        )
        parts.append(table(("configuration", "speed", "tokens per pass", "acceptance"), lines) + "\n")
    return "\n".join(parts)


def exact_rows() -> str:
    """Tokens whose logits change with the tokens of a pass, by precision."""
    rows = saved("exact_rows").query("stretch.isnull()")
    rows = rows.drop_duplicates(["model", "precision", "blas", "rows"], keep="last")
    rows = rows.rename(columns={"blas": "BLAS", "cost of a padded pass": "cost"})
    head = ["model", "precision", "BLAS", "tokens", "same bits", "turned round", "widest gap"]
    head += ["padded: same bits", "padded: turned round", "cost"]
    return table(head, rows[head].convert_dtypes().itertuples(index=False))


def proposal_ends() -> str:
    """Tokens in the time of a pass where proposals end by the draft's probability, beside the best length for all."""
    rows = saved("proposal_ends").rename(columns={"draft pass": "draft_pass", "one length": "length"})
    rows = rows.drop_duplicates(["draft", "target", "language", "row", "draft_pass"], keep="last")
    lines = (
        (
            f"{r.draft} → {r.target}",
            f"{r.row:g}",
            f"{r.draft_pass:g}",
            f"{r.length[1]:.2f} ({r.length[0]:g})",
            *(f"{v[1]:.2f} ({v[0]:g}; {v[2]:+.0%} to {v[3]:+.0%})" for v in (r.behind, r.before)),
            f"{r.default[1]:.2f} ({r.default[2]:+.0%} to {r.default[3]:+.0%})",
        )
        for r in rows.itertuples()
    )
    head = ("pair", "cost of a row", "of a draft pass", "one length", "behind", "before", "behind, at 0.2")
    return table(head, lines)


def _blank(value: Any) -> Any:
    return "–" if value == "" or value != value else f"{value:.2f}"


def _listed(values: Iterable[Any]) -> str:
    """Return ``a, b and c``."""
    *others, last = (f"{value:g}" if isinstance(value, float) else str(value) for value in values)
    return f"{', '.join(others)} and {last}"
