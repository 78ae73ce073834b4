"""Names that may be hub ids: one request, and an error at once where there is nothing."""

import time

import pytest

from spectool import RuntimeUnsupported, TokenizerError
from spectool.runtime.loading import load_model
from spectool.tokenization.opening import open_tokenizer


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A hub that nobody answers for; the names that were asked for."""
    import huggingface_hub

    asked: list[str] = []

    def refuse(self: object, name: str, **options: object) -> None:
        asked.append(name)
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    return asked


def test_a_mistyped_path_is_asked_for_once(unreachable: list[str]) -> None:
    began = time.monotonic()
    with pytest.raises(TokenizerError, match=r"modles/gemma: no such directory; as a hub id, not found \(Name or"):
        open_tokenizer("modles/gemma")
    with pytest.raises(RuntimeUnsupported, match="modles/gemma: no such directory; as a hub id, not found"):
        load_model("modles/gemma")
    assert unreachable == ["modles/gemma"] * 2
    assert time.monotonic() - began < 20  # imports, and no retries


def test_what_is_no_hub_id_asks_nobody(unreachable: list[str]) -> None:
    for name in ("./modles/gemma", "models/pl/gemma", "gemma"):
        with pytest.raises(TokenizerError, match="not a hub id"):
            open_tokenizer(name)
    assert unreachable == []
