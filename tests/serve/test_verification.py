"""`--verify rejection` behind the server: more drafts kept, the same answer to a seed, greedy answers as ever."""

from typing import Any

import pytest

from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_drafter
from spectool.serve.server import Server
from spectool.tests.serve.servers import TARGET, client, serving, without_drafter

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("interpreted")]
PROMPT = "Wczoraj wieczorem w domu"
TOKENS = 24


def ask(server: Server, **options: Any) -> Any:
    return client(server).completions.create(model=TARGET, prompt=PROMPT, max_tokens=TOKENS, **options)


def answer(server: Server, **options: Any) -> tuple[str, float]:
    """Return the text, and the share of drafts that were accepted."""
    got = ask(server, **options)
    return got.choices[0].text, got.metrics["speculative_decoding"]["draft_acceptance_rate"]


def drafting(model: str, verify: str) -> Any:
    return serving(
        lambda tokenizer: load_drafter(tokenizer, draft_model=model, history=False),
        num_draft_tokens=4,
        verify=verify,
    )


def test_a_seed_repeats_its_answer_and_greedy_answers_stay() -> None:
    with serving(without_drafter) as plain:
        greedy, _ = answer(plain, temperature=0)
    with drafting(str(demo_path("draft")), "rejection") as server:
        sampled = [answer(server, temperature=1.5, top_p=0.95, seed=seed) for seed in (7, 7, 8)]
        assert sampled[0] == sampled[1] and sampled[0][0] != sampled[2][0]
        assert answer(server, temperature=0)[0] == greedy


def test_the_targets_own_drafts_are_kept_by_rejection_sampling_only() -> None:
    settings: dict[str, Any] = {
        "temperature": 1.5,
        "seed": 3,
        "extra_body": {"min_p": 0.001, "xtc_probability": 0.3, "xtc_threshold": 0.2, "repetition_penalty": 1.2},
    }
    with drafting(TARGET, "rejection") as server:
        assert answer(server, **settings)[1] > 0.9
    with drafting(TARGET, "exact") as server:
        assert answer(server, **settings)[1] < 0.7


def test_another_rule_is_refused_at_the_start() -> None:
    with pytest.raises(Exception, match="'exact' or 'rejection', got 'never'"), drafting(TARGET, "never"):
        pass


def test_drafts_of_a_model_are_verified_by_rejection_sampling_by_default() -> None:
    made: dict[str, Any] = {"draft_model": TARGET, "history": False}
    shares = []
    for options in {}, {"verify": "exact"}:
        with serving(lambda tokenizer: load_drafter(tokenizer, **made), num_draft_tokens=4, **options) as server:
            answers = [ask(server, temperature=1.5, seed=seed) for seed in range(3, 11)]
        figures = [got.metrics["speculative_decoding"] for got in answers]
        drafted, accepted = (
            sum(each[f"num_{name}_tokens"] for each in figures) for name in ("draft", "accepted_draft")
        )
        print(f"{options}: {accepted} of {drafted} drafts accepted")
        assert drafted >= TOKENS
        shares.append(accepted / drafted)
    assert shares[0] > 0.9 and shares[1] < 0.4, "a perfect draft"
