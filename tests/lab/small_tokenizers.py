"""Tokenizers of some hundred ids whose answers are known by hand."""

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers

from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.token_bytes import byte_symbols
from spectool.tokenization.tokenizer import Tokenizer


def byte_level(*merges: tuple[str, str]) -> Tokenizer:
    """Byte-level BPE; nothing is cut before the merges."""
    names = [*byte_symbols(), *("".join(pair) for pair in merges)]
    backend = Backend(models.BPE({name: place for place, name in enumerate(names)}, list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|end|>"])
    return open_tokenizer(backend)


def sentence_piece(*merges: tuple[str, str]) -> Tokenizer:
    """SentencePiece-style BPE: a space before every text, dropped again by the decoder."""
    names = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"kotaś"]
    names += ["".join(pair) for pair in merges]
    vocabulary = {name: place for place, name in enumerate(names)}
    backend = Backend(models.BPE(vocabulary, list(merges), byte_fallback=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>"])
    return open_tokenizer(backend)
