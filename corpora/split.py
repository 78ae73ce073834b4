"""A train and a validation part that stay the same on every machine and in every run.

A document's part depends on its id and the seed alone. So documents may be added, removed or read in another order
without moving any other one.
"""

import hashlib


def in_valid(document_id: str, share: float = 0.01, seed: int = 0) -> bool:
    """Say whether a document belongs to the validation part.

    With one seed, the validation part of a larger share contains that of a smaller one.

    >>> in_valid("a.txt:1", share=0.0), in_valid("a.txt:1", share=1.0)
    (False, True)

    Args:
        document_id: `Document.id`.
        share: Expected share of the documents in the validation part, 0 to 1.
        seed: Another seed draws another part.

    Raises:
        ValueError: ``share`` is outside 0 to 1.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share: expected a number from 0 to 1, got {share}")
    keyed = f"{seed}\0{document_id}".encode("utf-8", "surrogatepass")
    draw = int.from_bytes(hashlib.blake2b(keyed, digest_size=8).digest(), "big")
    return draw < share * 2**64
