"""Answers that follow a JSON schema, a regular expression or a grammar: which tokens may come next, and which must.

llguidance's parser follows the text. At each position it allows the tokens after which the text can still become one of
the grammar; the target chooses among these, by their probabilities divided by their sum. Where only one text can
follow, such as a name in a JSON object, only the token that the tokenizer writes it with is allowed, and drafted.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from itertools import takewhile
from typing import Any, cast
from weakref import WeakKeyDictionary

import mlx.core as mx
import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, grammar_from
from llguidance import TokenizerWrapper as LLTokenizerWrapper
from llguidance.gbnf_to_lark import is_lark_syntax
from numpy.typing import NDArray

from spectool import RuntimeUnsupported
from spectool.runtime.chat_template import has_channels
from spectool.runtime.mlx_lm_compat import TokenizerWrapper
from spectool.tokenization.opening import open_tokenizer

_MOST_FORCED = 4096  # forced tokens beyond which encoding them after each pass would take longer than the pass
# Between the tokens of JSON. Unbounded, small models write it until the answer is full.
_WHITE_SPACE = r"\n[ \t]{0,40}| ?"
# What ends a JSON number that has digits enough, which small models also write until the answer is full. The largest
# whole number of 64 bits has 20, and a double 17. Of an exponent, two: 1e999 is infinite for most readers.
_LONG_NUMBER = re.compile(rb"(?:[0-9]{20}|[0-9][eE][+-]?[0-9]{2})\Z")
_IN_OR_AFTER_NUMBERS = b"0123456789.eE,]} \t\r\n"
_MOST_ITEMS = 2_500  # of the parser for one place, where it follows four for each optional property
_MOST_REMAINDERS = 1 << 16  # for `multipleOf`, which the parser works out one by one: in a quarter of a second
_REASON = 300  # characters of the parser's explanations
_known: WeakKeyDictionary[Any, dict[frozenset[int], "_Vocabulary"]] = WeakKeyDictionary()  # by tokenizer and ends


class Grammar:
    """What an answer has to look like, compiled for the tokens of a model. Generations may share it.

    The text of the answer is that of its tokens with all spaces.
    """

    def __init__(self, tokenizer: Any, kind: str, value: Any, *, reasoning: bool | None = None) -> None:
        """Compile a grammar.

        Args:
            tokenizer: mlx-lm's ``TokenizerWrapper``, or a transformers tokenizer. Its first grammar takes seconds.
            kind: ``json_schema``, ``regex`` (in Rust's syntax), ``choice``, ``grammar`` (llguidance's variant of Lark,
                or GBNF), or ``rules`` for llguidance's own form.
            value: The schema as an object or JSON, the pattern, the list of texts, the grammar, or the rules.
            reasoning: Whether a model that reasons does so freely before the answer: True if the prompt ends in the
                marker that begins this, False if the answer may begin with it, and None if there is none.

        Raises:
            RuntimeUnsupported: The grammar is wrong or too complex, or the tokenizer is not supported.
        """
        if not isinstance(tokenizer, TokenizerWrapper):
            tokenizer = TokenizerWrapper(tokenizer)
        self._tokenizer = tokenizer
        self.vocabulary, rules = _vocabulary_of(tokenizer), rules_of(kind, value)
        self.kind = "grammar" if kind == "rules" else kind  # in errors
        begin, end = (getattr(tokenizer, f"think_{edge}", None) or "" for edge in ("start", "end"))
        free = ""
        if reasoning is not None and begin and end:
            free = "reasoning /\\n{0,2}/" if reasoning else f"({literal(tokenizer, begin)} reasoning /\\n{{0,2}}/)?"
        elif reasoning is not None and has_channels(tokenizer):
            analysis, final = (literal(tokenizer, f"<|channel|>{name}<|message|>") for name in ("analysis", "final"))
            free, end = f"(({analysis} reasoning {literal(tokenizer, '<|start|>assistant')})? {final})?", "<|end|>"
        if free:
            start = f"start: {free} @answer\n{free_up_to(tokenizer, end, 'reasoning')}"
            rules = [{"lark_grammar": start}, {**rules[0], "name": "answer"}, *rules[1:]]
        try:
            self._rules = json.dumps({"grammars": rules}, allow_nan=False)
            _require_few_remainders(self._rules)
        except (TypeError, ValueError, RecursionError) as error:
            raise RuntimeUnsupported(f"{kind}: expected something that JSON can express ({error})") from error
        self.has_json = any(rule.get("json_schema") is not None for rule in rules)
        matcher = self.matcher()
        first = next(
            (int(token) for token in np.flatnonzero(_bits(matcher)) if token not in self.vocabulary.ends), None
        )
        if not matcher.get_error() and first is not None and matcher.try_consume_tokens([first]):
            matcher.compute_bitmask()  # some of what is wrong shows only after a token
        if problem := matcher.get_error():
            raise RuntimeUnsupported(f"{kind}: expected one that can be enforced, got: {_shortened(problem)}")

    def require(self, tokenizer: TokenizerWrapper) -> None:
        """Raise `RuntimeUnsupported` if the grammar was compiled for other tokens than those of ``tokenizer``."""
        own = self._tokenizer
        if own._tokenizer is not tokenizer._tokenizer and own.get_vocab() != tokenizer.get_vocab():
            problem = "compiled for the tokens of another tokenizer. Give Grammar the tokenizer of this model"
            raise RuntimeUnsupported(f"grammar: {problem}")

    def matcher(self) -> LLMatcher:
        """A parser at the beginning of an answer. Copies of one would share what it fails with."""
        limits = LLParserLimits(verbose_errors=False, max_items_in_row=_MOST_ITEMS)
        return LLMatcher(self.vocabulary.trie, self._rules, log_level=0, limits=limits)

    def constraint(self, rows: int) -> "GrammarConstraint":
        """The state of one answer of a model with this many ``rows``."""
        return GrammarConstraint(self, rows)


class GrammarConstraint:
    """What may follow in one answer. Between calls, its parser has read the committed tokens and nothing else."""

    def __init__(self, grammar: Grammar, rows: int) -> None:
        self._grammar, self._rows = grammar, rows
        self._matcher = grammar.matcher()
        self._known = min(rows, grammar.vocabulary.trie.vocab_size)  # the other ids are never text
        self._ends = grammar.vocabulary.ends
        self._followed: list[int] = []  # by the parser: the committed tokens and, within `masks`, drafts
        self._ended = self._unforced = False

    def masks(self, draft: Sequence[int] = ()) -> mx.array:
        """Which tokens may follow the committed ones, and each draft token in addition, bool [positions, rows].

        Positions end where the text does: at the first draft token that is not allowed, or that ends the answer.
        A RuntimeUnsupported if what follows the committed ones is too complex for the parser, or has no tokens.
        """
        masks: list[NDArray[np.bool_]] = []
        committed, error = len(self._followed), ""
        for token in (*draft, None):
            mask = self._mask()
            error = self._matcher.get_error()
            if error or not mask.any():
                break
            masks.append(mask)
            if token is None or not mask[token] or not self._follow(token):
                break
        self._take_back(len(self._followed) - committed)
        if not masks:
            raise self._stuck(error)
        return mx.array(np.stack(masks))

    def allowed(self, tokens: Sequence[int]) -> int:
        """Number of leading ``tokens`` that can have a probability above 0; the one after them cannot."""
        end = next((at for at, token in enumerate(tokens) if token in self._ends or token >= self._known), len(tokens))
        count = 0 if self._ended else self._matcher.validate_tokens(list(tokens[:end]))
        if self._matcher.is_error():  # the masks will show how far it gets
            self._take_back(0)
            return len(tokens)
        return min(count + 1, len(tokens)) if count == end else count

    def forced(self, limit: int) -> list[int]:
        """At most ``limit`` tokens of the only text that can follow; none where the model has a choice."""
        if self._ended or self._unforced or limit <= 0:
            return []
        tokens = self._matcher.compute_ff_tokens()
        self._unforced = len(tokens) > _MOST_FORCED
        return tokens[: self.allowed(tokens[:limit])]

    def commit(self, tokens: Iterable[int]) -> None:
        """Follow what the target chose; RuntimeUnsupported for a token of probability 0, or if the parser gives up."""
        for token in tokens:
            self._ended = self._ended or token in self._ends
            if self._ended:
                return
            if not self._follow(token):
                if error := self._matcher.get_error():
                    raise self._stuck(error)
                raise RuntimeUnsupported(
                    f"sampler: chose token {token}, which has probability 0 because of the {self._grammar.kind}"
                )

    def _stuck(self, error: str) -> RuntimeUnsupported:
        reason = _shortened(error) or "the model has no token for what has to follow"
        return RuntimeUnsupported(
            f"{self._grammar.kind}: cannot continue after {len(self._followed)} tokens ({reason}). Make it simpler"
        )

    def _mask(self) -> NDArray[np.bool_]:
        mask = np.zeros(self._rows, bool)
        if self._ended:
            mask[[end for end in self._ends if end < self._rows]] = True
            return mask
        mask[: self._known] = _bits(self._matcher)[: self._known]
        if self._grammar.has_json:
            self._bound_digits(mask)
        return mask

    def _bound_digits(self, mask: NDArray[np.bool_]) -> None:
        """Take the tokens out of ``mask`` by which a JSON number would get too many digits, unless it needs them."""
        spelled = self._grammar.vocabulary.spelled
        if not _LONG_NUMBER.search(b"".join(spelled[token] for token in self._followed[-20:])):
            return
        allowed = np.flatnonzero(mask)
        firsts = (b"," if token in self._ends else spelled[token][:1] for token in allowed)
        found = list(takewhile(_IN_OR_AFTER_NUMBERS.__contains__, firsts))  # not all of them in a string
        if len(found) == len(allowed) and not {*found}.isdisjoint((b",", b"]", b"}")):  # a number, which can end here
            mask[allowed[[first.isdigit() for first in found]]] = False

    def _follow(self, token: int) -> bool:
        # The parser does not count an end token where nothing else can follow, so it could not be taken back.
        if self._ended or token in self._ends or self._matcher.try_consume_tokens([token]) != 1:
            return False
        self._followed.append(token)
        return True

    def _take_back(self, tokens: int) -> None:
        """Let the parser forget the last ``tokens``; after an error it never recovers by itself."""
        del self._followed[len(self._followed) - tokens :]
        if self._matcher.is_error() or (tokens and not self._matcher.rollback(tokens)):
            self._matcher = self._grammar.matcher()
            self._matcher.consume_tokens(self._followed)


def rules_of(kind: str, value: Any) -> list[dict[str, Any]]:
    """The rules of a grammar in llguidance's form: objects with ``json_schema`` or ``lark_grammar``, the answer first.

    White space in JSON is bounded, unless a schema says otherwise in ``x-guidance``. Arguments and errors are those of
    `Grammar`.
    """
    try:
        if kind == "rules":
            return list(value)
        if kind == "json_schema":
            schema = json.loads(value) if isinstance(value, str) else value
            options = schema.get("x-guidance", {}) if isinstance(schema, Mapping) else None
            if isinstance(options, Mapping) and not any(name.startswith("whitespace") for name in options):
                schema = {**schema, "x-guidance": {"whitespace_pattern": _WHITE_SPACE, **options}}
            return [{"json_schema": schema}]
        if kind == "choice":  # as one terminal, so that the parser does not follow each text by itself
            texts = " | ".join(json.dumps(text) for text in value)
            return [{"lark_grammar": f"start: CHOICE\nCHOICE: {texts}"}]
        if kind == "grammar" and not is_lark_syntax(value) and {*"uU"} & {*re.findall(r"\\(.)", value)}:
            raise ValueError("characters by their numbers (\\u); write the characters themselves")  # it misreads them
        made = grammar_from(cast(Any, kind), value)
        return list(json.loads(made)["grammars"]) if made.startswith("{") else [{"lark_grammar": made}]
    except Exception as error:  # converting GBNF raises all kinds
        raise RuntimeUnsupported(f"{kind}: expected one that can be read, got: {error}") from error


def _require_few_remainders(rules: str) -> None:
    """Raise RuntimeUnsupported if numbers of a schema, or of one in a grammar, are multiples of too large ones."""
    multiple = 1

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal multiple
        for name, value in pairs:
            if name == "multipleOf" and isinstance(value, int | float):
                digits = "".join(map(str, Decimal(repr(value)).as_tuple().digits))
                multiple = math.lcm(multiple, int(digits.rstrip("0") or 1))
            if multiple > _MOST_REMAINDERS:  # together, since several may hold for one number
                problem = f"a least common multiple above {_MOST_REMAINDERS:,} takes too long"
                raise RuntimeUnsupported(f"{name} {value!r:.40}: {problem}")
            for schema in re.finditer(r"%json\s*", value) if isinstance(value, str) else ():
                with suppress(ValueError, RecursionError):  # which the parser will say
                    decoder.raw_decode(value, schema.end())

    decoder = json.JSONDecoder(object_pairs_hook=look)
    decoder.decode(rules)


def literal(tokenizer: Any, text: str) -> str:
    """``text`` as Lark writes it, with special tokens by their ids because they are not text."""
    specials = _vocabulary_of(tokenizer).specials
    names = sorted(map(re.escape, specials), key=len, reverse=True)
    parts = re.split(f"({'|'.join(names)})", text) if names else [text]
    return " ".join(
        f"<[{specials[part]}]>" if part in specials else json.dumps(part, ensure_ascii=False) for part in parts if part
    )


def free_up_to(tokenizer: Any, marker: str, name: str, free: str = "/(?s:.*)/") -> str:
    """A rule for any text that ends in ``marker``, where it occurs first; or for one of ``free`` ones."""
    text = literal(tokenizer, marker)
    return f"{name}: {free} {text}" if text.startswith("<") else f"{name}[suffix={text}]: {free}"


class _Vocabulary:
    """The tokens of one tokenizer, as llguidance reads them."""

    def __init__(self, tokenizer: Any) -> None:
        opened = open_tokenizer(tokenizer)
        known = (end for end in tokenizer.eos_token_ids if isinstance(end, int) and 0 <= end < opened.size)
        self.ends = frozenset(known)  # ids that end an answer, without what else a configuration may call one
        if not self.ends:
            problem = "has no token that ends a text, so that answers cannot be constrained"
            raise RuntimeUnsupported(f"grammar: {opened.name} {problem}")
        ends, special = sorted(self.ends), opened.specials | self.ends
        self.specials = {opened.backend.id_to_token(token) or "": token for token in special}  # no text; id by name
        self.spelled = [opened.shown_bytes_of(i) if i in special else raw for i, raw in enumerate(opened.token_bytes)]
        running, spelled = opened.running_backend, self.spelled

        class Tokens:
            """What llguidance asks for; it encodes texts that are forced, which begin inside an answer."""

            eos_token_id, bos_token_id, special_token_ids = ends[0], opened.roles.bos, sorted(special)
            tokens = spelled

            def __call__(self, text: str) -> list[int]:
                ids = running.encode(text, add_special_tokens=False).ids
                same = b"".join(spelled[token] for token in ids) == text.encode()
                return ids if same else trie.greedy_tokenize(text)

        self.trie = trie = LLTokenizer(LLTokenizerWrapper(Tokens()), eos_token=ends)


def _vocabulary_of(tokenizer: TokenizerWrapper) -> _Vocabulary:
    known = _known.setdefault(tokenizer._tokenizer, {})
    ends = frozenset(tokenizer.eos_token_ids)
    if ends not in known:
        known[ends] = _Vocabulary(tokenizer)
    return known[ends]


def _bits(matcher: LLMatcher) -> NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little").astype(bool)


def _shortened(reason: str) -> str:
    if "Too many items" in reason or "Current row has" in reason:
        return "so many continuations at one place that following them all is too dear"
    reason = reason.replace("NoExtensionBias", "no text of it can be written with the tokens of the model")
    return " ".join(reason.replace("<non-verbose/>", "").split())[:_REASON]
