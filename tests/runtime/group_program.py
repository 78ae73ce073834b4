"""What every rank of a ring runs in `test_groups`: many generations, on ranks that are late now and then."""

import json
import random
import sys
import time
from itertools import islice
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step, generation_stream

from spectool.runtime import Sampling, generate, load_drafter, new_policy
from spectool.runtime.grammar import Grammar
from spectool.runtime.groups import rank_0
from spectool.runtime.groups.link import Link
from spectool.runtime.loading import load_model

PROMPTS = ["Most w Jaworowcu", "Wczoraj wieczorem", "Stacja kolejowa", "W roku 1999", "Ala ma kota i", "Zupa"]
SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}}, "required": ["a"]}'
TOKENS = 24


def main(settings: dict[str, Any]) -> None:
    """Print each text, and whether it is right, as JSON."""
    rank_0.checked_every = 1
    model, tokenizer = load_model(settings["model"], pipeline=settings["pipeline"])
    rng = random.Random(mx.distributed.init().rank())
    in_time = Link._summed

    def late(*arguments: Any) -> bytes:
        if rng.random() < settings["late"]:
            time.sleep(rng.uniform(0, 0.05))
        return in_time(*arguments)

    Link._summed = late  # type: ignore[method-assign]
    sources = {key: settings[key] for key in ("dictionary", "draft_model", "alignment") if settings[key]}
    look_ups = load_drafter(tokenizer, dictionary=settings["dictionary"])
    drafters = [
        look_ups,
        load_drafter(tokenizer, **sources),
        look_ups,
        look_ups,
        look_ups,
        load_drafter(tokenizer, **sources),
    ]
    found: list[Any] = []
    begun: list[Any] = []

    def begin_with_mlx_lm(prompt: str) -> None:
        """Leave a pass of mlx-lm's own loop under way, and a sum that not all ranks have begun."""
        begun.append(generate_step(mx.array(tokenizer.encode(prompt)), model))
        list(islice(begun[-1], 1 + len(found) % 40))
        if len(found) % 2 == 0:
            begun.clear()
        time.sleep(rng.uniform(0, 0.1))  # a CPU hardly leaves more of a pass under way than the sum at its end
        mx.async_eval(mx.distributed.all_sum(mx.ones(9), stream=generation_stream))

    def write(prompt: str, **options: Any) -> str:
        if settings["unfinished"]:
            begin_with_mlx_lm(prompt)
        return generate(model, tokenizer, prompt, max_tokens=TOKENS, **options)

    if settings["unfinished"]:
        begin_with_mlx_lm(PROMPTS[0])
    # It measures passes, on rank 0 alone; the next call of the others follows, which must be one of spectool's then.
    policy = new_policy(model, look_ups, measure=not settings["unfinished"])
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
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
