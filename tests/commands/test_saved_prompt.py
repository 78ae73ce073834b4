"""`generate --save-prompt-cache` and `--prompt-cache-file`: neither model reads the prompt twice, or it is told."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from spectool.build.alignment.stage import build_alignment
from spectool.cli import main
from spectool.corpora import open_corpus
from spectool.runtime.demo_models import demo_path
from spectool.runtime.loading import load_drafter, load_model
from spectool.runtime.prompt_cache import load_prompt_cache
from spectool.tests.commands.chatting import chat_model
from spectool.tests.runtime.models import KINDS, plain, tiny_model
from spectool.tokenization.opening import open_tokenizer

TARGET, DRAFT = (str(demo_path(name)) for name in ("target", "draft"))
BEGIN, REST = "Most w Jaworowcu zamknięty do końca. Mamo, dlaczego? " * 2 + "Wczoraj", " wieczorem w domu"
DRAFTERS = ("target", "same tokenizer", "byte-aligned", "byte-aligned, recurrent")


@pytest.fixture(scope="module")
def drafters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Options by name: drafts of the target's tokenizer, and random models with another one."""
    folder, kinds = tmp_path_factory.mktemp("others"), ("llama", "falcon_h1")
    for kind in kinds:
        shutil.copytree(demo_path("other"), folder / kind)
        size = open_tokenizer(folder / kind).size
        tiny_model(kind, vocabulary=size).save_weights(str(folder / kind / "model.safetensors"))
        config = {"model_type": kind, "vocab_size": size, **KINDS[kind]}
        (folder / kind / "config.json").write_text(json.dumps(config))
    sides = open_tokenizer(folder / "llama"), open_tokenizer(demo_path("target"))
    build_alignment(*sides, open_corpus("sample:pl"), folder / "pair.align", lambda step: None, sample=0)
    llama, recurrent = (
        ["--draft-model", str(folder / kind), "--alignment", str(folder / "pair.align")] for kind in kinds
    )
    options = [], ["--draft-model", DRAFT], llama, recurrent
    return dict(zip(DRAFTERS, options, strict=True))


def run(*arguments: str, model: str = TARGET) -> Any:
    return CliRunner().invoke(main, ["generate", "--model", model, "-m", "10", "--json", *arguments])


def ran(*arguments: str, model: str = TARGET) -> tuple[dict[str, Any], str]:
    result = run(*arguments, model=model)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), result.stderr


def expected() -> str:
    """Return what the target says after both parts, each tokenized by itself."""
    model, tokenizer = load_model(TARGET)
    prompt = [*tokenizer.encode(BEGIN), *tokenizer.encode(REST, add_special_tokens=False)]
    text: str = tokenizer.decode(plain(model, prompt, 10))
    return text.partition(tokenizer.eos_token)[0]


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_saved_prompt_is_gone_on_with(drafter: str, drafters: dict[str, list[str]], tmp_path: Path) -> None:
    file, drafting = str(tmp_path / "begin.safetensors"), drafters[drafter]
    facts, notes = ran(*drafting, "-p", BEGIN, "--save-prompt-cache", file)
    assert notes == "" and facts["prompt_cache"] == file and facts["bytes"] == Path(file).stat().st_size
    assert (facts["draft_tokens"] > 0) is (drafter != "target")
    assert [path.name for path in tmp_path.iterdir()] == ["begin.safetensors"]
    answered, notes = ran(*drafting, "-p", REST, "--prompt-cache-file", file)
    assert answered["text"].strip() == expected().strip()
    assert notes == ""


@pytest.mark.parametrize("drafter", DRAFTERS[1:])
def test_the_draft_model_reads_only_what_is_new(drafter: str, drafters: dict[str, list[str]], tmp_path: Path) -> None:
    file, drafting = str(tmp_path / "begin.safetensors"), drafters[drafter]
    ran(*drafting, "-p", BEGIN, "--save-prompt-cache", file)
    given = dict(zip(drafting[::2], drafting[1::2], strict=True))
    options = {name.removeprefix("--").replace("-", "_"): value for name, value in given.items()}
    tokenizer = load_model(TARGET)[1]
    rest = tokenizer.encode(REST, add_special_tokens=False)
    read = []
    for loaded in (True, False):
        drafter: Any = load_drafter(TARGET, history=False, **options)  # type: ignore[arg-type]
        saved = load_prompt_cache(file, drafter if loaded else None)
        assert saved.tokens == tokenizer.encode(BEGIN)
        model, drafter.cache.model, fed = drafter.cache.model, None, []

        def counted(tokens: Any, cache: Any = None, model: Any = model, fed: list[int] = fed) -> Any:
            fed.append(tokens.size)
            return model(tokens, cache=cache)

        drafter.cache.model = counted
        drafter.start([*saved.tokens, *rest])
        drafter.propose(1)
        read.append(sum(fed))
    assert read[1] - read[0] >= saved.draft_tokens - 1, read


def test_what_is_read_again_is_told(drafters: dict[str, list[str]], tmp_path: Path) -> None:
    from mlx_lm.models.cache import make_prompt_cache, save_prompt_cache

    file, host = str(tmp_path / "begin.safetensors"), str(tmp_path / "host.safetensors")
    ran("-p", BEGIN, "--save-prompt-cache", file)
    text, notes = ran("-p", REST, "--prompt-cache-file", file, *drafters["same tokenizer"])
    assert "the draft model reads it again" in notes and "--save-prompt-cache" in notes
    assert text["text"].strip() == expected().strip()
    assert ran("-p", REST, "--prompt-cache-file", file)[1] == "", "no draft model misses none"

    import mlx.core as mx

    model, tokenizer = load_model(TARGET)
    cache = make_prompt_cache(model)
    mx.eval(model(mx.array([tokenizer.encode(BEGIN)]), cache=cache))
    save_prompt_cache(host, cache, {"model": TARGET})
    text, notes = ran("-p", REST, "--prompt-cache-file", host)
    assert "does not list its tokens" in notes
    assert text["text"].strip() == expected().strip()
    assert ran("-p", REST, "--prompt-cache-file", host, "--no-history")[1] == ""


def test_history_and_penalties_see_the_saved_part(tmp_path: Path) -> None:
    file, phrase = str(tmp_path / "begin.safetensors"), "Ala ma kota, Ala ma kota, Ala ma"
    penalties = ["--repetition-penalty", "1.5"]
    ran("-p", phrase, "--save-prompt-cache", file)
    saved, _ = ran("-p", " kota", "--prompt-cache-file", file, *penalties, "--min-draft-prob", "0")
    model, tokenizer = load_model(TARGET)
    from mlx_lm.sample_utils import make_logits_processors

    prompt = [*tokenizer.encode(phrase), *tokenizer.encode(" kota", add_special_tokens=False)]
    processors = make_logits_processors(None, 1.5)
    assert saved["text"] == tokenizer.decode(plain(model, prompt, 10, logits_processors=processors))


def test_the_template_is_split_where_the_prompt_ends(tmp_path: Path) -> None:
    template = "<{% for message in messages %}[{{ message['content'] }}]{% endfor %}>"
    model, file = chat_model(tmp_path, template), str(tmp_path / "begin.safetensors")
    system = ["--system-prompt", "Krótko."]
    ran(*system, "-p", BEGIN, "--save-prompt-cache", file, model=model)
    text, said = ran(*system, "-p", REST, "--prompt-cache-file", file, model=model)
    assert "--system-prompt is not read, because the saved prompt is the beginning" in said
    loaded, tokenizer = load_model(model)
    parts = f"<[Krótko.][{BEGIN}", f"{REST}]>"
    prompt = [token for part in parts for token in tokenizer.encode(part, add_special_tokens=False)]
    assert text["text"].strip() == tokenizer.decode(plain(loaded, prompt, 10)).strip()


def test_what_does_not_fit_is_refused(drafters: dict[str, list[str]], tmp_path: Path) -> None:
    file = str(tmp_path / "begin.safetensors")
    ran(*drafters["same tokenizer"], "-p", BEGIN, "--save-prompt-cache", file)
    cases = (
        (drafters["byte-aligned"], TARGET, 1, ("its draft cache is of model", DRAFT, "--save-prompt-cache")),
        ([], DRAFT, 1, (f"a prompt cache of {TARGET}, expected one of {DRAFT}",)),
        (["--save-prompt-cache", file], TARGET, 2, ("leave out --prompt-cache-file",)),
        (["--max-kv-size", "64"], TARGET, 2, ("--max-kv-size is decided", "save the prompt again")),
    )
    for options, model, code, messages in cases:
        result = run("-p", REST, "--prompt-cache-file", file, *options, model=model)
        assert result.exit_code == code, result.output
        assert all(message in result.stderr for message in messages), result.stderr
    (schema := tmp_path / "schema.json").write_text("{}")
    for ignored in (["--json-schema", str(schema)], ["--dict", "nosuch"], ["--dict", "auto"]):
        result = run("-p", BEGIN, "--save-prompt-cache", file, *ignored)
        assert result.exit_code == 2 and f"{ignored[0]} and" in result.stderr.replace(",", " and"), result.output
    for name in ("begin.bin", "nowhere/begin.safetensors"):
        result = run("-p", BEGIN, "--save-prompt-cache", str(tmp_path / name))
        assert result.exit_code == 2 and "ends in .safetensors, in a directory that exists" in result.stderr


def test_weights_are_not_replaced_and_no_model_is_loaded_to_say_so(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    shutil.copyfile(Path(TARGET) / "model.safetensors", file)
    result = run("-p", BEGIN, "--save-prompt-cache", str(file), model="./nowhere")
    assert result.exit_code == 1 and f"{file}: exists and is not a prompt cache" in result.stderr, result.stderr
    assert file.read_bytes() == (Path(TARGET) / "model.safetensors").read_bytes()


def test_a_model_goes_by_its_weights_and_not_by_its_name(tmp_path: Path) -> None:
    file, copy = str(tmp_path / "begin.safetensors"), str(tmp_path / "copy")
    shutil.copytree(TARGET, copy)
    ran("-p", BEGIN, "--save-prompt-cache", file)
    assert ran("-p", REST, "--prompt-cache-file", file, model=copy)[0]["text"].strip() == expected().strip()
