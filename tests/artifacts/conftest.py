"""Small tokenizers made for the tests of this folder."""

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spectool.artifacts.surfaces import byte_symbols


@pytest.fixture
def byte_level() -> Backend:
    """Byte-level BPE with all 256 bytes, `` kot`` as one token and two added tokens."""
    names = [*byte_symbols(), "ko", "kot", "Ġkot"]
    merges = [("k", "o"), ("ko", "t"), ("Ġ", "kot")]
    backend = Backend(models.BPE({name: place for place, name in enumerate(names)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|endoftext|>"])
    backend.add_tokens([AddedToken("<think>", normalized=False)])
    return backend


@pytest.fixture
def sentence_piece() -> Backend:
    """SentencePiece-style BPE with byte fallback, laid out like Llama 2."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += ["▁", "k", "o", "t", "\n", "ko", "kot", "▁kot"]
    merges = [("k", "o"), ("ko", "t"), ("▁", "kot")]
    vocabulary = {name: place for place, name in enumerate(names)}
    backend = Backend(models.BPE(vocabulary, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return backend
