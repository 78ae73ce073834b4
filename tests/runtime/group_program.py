"""What every rank of a ring runs in `test_groups`: many generations, on ranks that are late now and then."""

import json
import random
import sys
import time
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from spectool import RuntimeUnsupported
from spectool.runtime import Sampling, batch_generate, generate, load_drafter, new_policy
from spectool.runtime.grammar import Grammar
from spectool.runtime.groups.link import Link
from spectool.runtime.groups.others import follow_rank_0
from spectool.runtime.loading import load_model

PROMPTS = ["Most w Jaworowcu", "Wczoraj wieczorem", "Stacja kolejowa", "W roku 1999", "Ala ma kota i", "Zupa"]
SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}}, "required": ["a"]}'
TOKENS = 24


def main(settings: dict[str, Any]) -> None:
    """On rank 0, print each text, and whether it is right, as JSON."""
    model, tokenizer = load_model(settings["model"], pipeline=settings["pipeline"])
    rng = random.Random(mx.distributed.init().rank())
    in_time = Link._pass

    def late(*arguments: Any) -> mx.array:
        if rng.random() < settings["late"]:
            time.sleep(rng.uniform(0, 0.05))
        return in_time(*arguments)

    Link._pass = late  # type: ignore[method-assign]
    follow_rank_0(model)
    sources = {key: settings[key] for key in ("dictionary", "draft_model", "alignment") if settings[key]}
    look_ups = load_drafter(tokenizer, dictionary=settings["dictionary"])
    drafters = [look_ups, load_drafter(tokenizer, **sources), *[look_ups] * 3, load_drafter(tokenizer, **sources)]
    found: list[Any] = []

    def write(prompt: str, **options: Any) -> str:
        return generate(model, tokenizer, prompt, max_tokens=TOKENS, **options)

    policy = new_policy(model, look_ups)  # which measures passes
    plain: dict[Any, str] = {}
    for number in range(settings["generations"]):
        kind, prompt = number % 6, PROMPTS[number // 6 % len(PROMPTS)] + "." * (number // 36)
        options: dict[str, Any] = {}
        if kind == 0:
            options["num_draft_tokens"] = policy
        if kind == 2:
            options["prediction"] = plain.get((prompt, False), "")[3:] + "."
        if kind == 3 and settings["dictionary"]:  # of this tokenizer
            options["grammar"] = Grammar(tokenizer, "json_schema", SCHEMA)
        if kind >= 4:
            options |= {"sampler": Sampling(temp=0.8), "seed": number}
        text = write(prompt, drafter=drafters[kind], **options)
        case = prompt, kind == 3
        if kind < 4 and case not in plain:
            plain[case] = write(prompt, num_draft_tokens=0, grammar=options.get("grammar"))
        found.append([text, kind >= 4 or text == plain[case]])
    both = [write(prompt, num_draft_tokens=0) for prompt in PROMPTS[:2]]
    assert batch_generate(model, tokenizer, PROMPTS[:2], drafter=look_ups, max_tokens=TOKENS).texts == both
    with pytest.raises(RuntimeUnsupported, match="prompt_cache: expected one that all processes"):
        write(PROMPTS[0], prompt_cache=make_prompt_cache(model))
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
