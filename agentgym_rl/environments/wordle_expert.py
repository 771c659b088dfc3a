"""The Wordle expert: of all answers, the one whose feedback is expected to tell most about those still possible.

It knows the list of answers and the feedback so far, nothing of the answer itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from agentgym_rl.environments.wordle_words import feedback, feedback_codes

CODES = 3**5
GUESSES_AT_ONCE = 256
"""Bounds the memory of one comparison of all answers with all answers to some 10 MB."""


def possible(answers: Sequence[str], told: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[str, ...]:
    """The answers that would have given the same feedback to each guess."""
    return tuple(word for word in answers if all(feedback(guess, word) == marks for guess, marks in told))


def best_guess(answers: tuple[str, ...], told: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    """The next guess; of equally good ones a possible answer, then the first in the list.

    The entropy of the feedback to a guess is `-sum_f p_f log p_f`, with p_f the share of the possible answers that
    would give the feedback f.
    """
    left = possible(answers, told) if told else answers
    if len(left) <= 2:
        return left[0]
    return _most_telling(answers, left)


@lru_cache(maxsize=4096)  # episodes begin alike, and the first guess takes seconds to find
def _most_telling(answers: tuple[str, ...], left: tuple[str, ...]) -> str:
    import numpy as np

    among = set(left)
    entropy_G = np.concatenate(
        [_entropies(answers[i : i + GUESSES_AT_ONCE], left) for i in range(0, len(answers), GUESSES_AT_ONCE)]
    )
    bonus_G = np.array([1e-6 if word in among else 0.0 for word in answers])
    return answers[int(np.argmax(np.round(entropy_G, 9) + bonus_G))]


def _entropies(guesses: tuple[str, ...], left: tuple[str, ...]) -> Any:
    """float [guesses], in nats."""
    import numpy as np

    codes_GA = feedback_codes(guesses, left).astype(np.int64)
    in_rows_GA = codes_GA + CODES * np.arange(len(guesses))[:, None]
    share_GF = np.bincount(in_rows_GA.ravel(), minlength=CODES * len(guesses)).reshape(-1, CODES) / len(left)
    return -(share_GF * np.log(np.where(share_GF > 0, share_GF, 1.0))).sum(1)
