"""Which texts are nearly the same: MinHash signatures of their word triples, in a locality-sensitive index.

The similarity is the Jaccard index |A ∩ B| / |A ∪ B| of the two sets of word triples, estimated from the share of equal
minima; its standard error is sqrt(J (1 - J) / PERMUTATIONS), at most 0.044. The index may miss a pair near the
threshold, and takes the same ones each time: its hash functions come from a fixed seed.

Source: Broder (1997), On the resemblance and containment of documents
"""

from __future__ import annotations

from typing import Any, NamedTuple

from agentgym_rl.errors import ConfigurationError

PERMUTATIONS = 128
SHINGLE_WORDS = 3
SEED = 1


class Near(NamedTuple):
    """An earlier text that is nearly the same."""

    id: str
    similarity: float


class NearDuplicates:
    """The texts seen so far.

    Args:
        threshold: similarity, from 0 to 1, from which on two texts count as the same.
    """

    def __init__(self, threshold: float):
        try:
            from datasketch import MinHashLSH
        except ModuleNotFoundError as error:
            raise ConfigurationError(f'it needs {error.name!r}: pip install "openmanus-rl[data]"') from error
        self._threshold = threshold
        # The index finds candidates only, and can't be tuned for the ends of the range.
        self._index = MinHashLSH(threshold=min(max(threshold, 0.1), 0.95), num_perm=PERMUTATIONS)
        self._signatures: dict[str, Any] = {}
        self._last: Any = None

    def nearest(self, text: str) -> Near | None:
        """The most similar text that was added, if it is similar enough."""
        self._last = signature = _signature(text)
        found = [Near(id, self._signatures[id].jaccard(signature)) for id in self._index.query(signature)]
        return max((near for near in found if near.similarity >= self._threshold), key=_rank, default=None)

    def add(self, id: str) -> None:
        """Remember the text that was asked about last."""
        self._signatures[id] = self._last
        self._index.insert(id, self._last)


def _rank(near: Near) -> tuple[float, str]:
    return near.similarity, near.id


def _signature(text: str) -> Any:
    from datasketch import MinHash

    words = text.lower().split()
    shingles = {" ".join(words[i : i + SHINGLE_WORDS]) for i in range(max(len(words) - SHINGLE_WORDS + 1, 1))}
    signature = MinHash(num_perm=PERMUTATIONS, seed=SEED)
    signature.update_batch([shingle.encode("utf-8", "surrogatepass") for shingle in shingles])
    return signature
