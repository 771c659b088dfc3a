"""The maze's observations in other words: sentences and walls in any order, and other words for some.

What opens the first observation, that a wall stopped the agent, and the answer to what is no action stay as they are.
"""

from __future__ import annotations

import random
import re
from collections.abc import Hashable

from agentgym_rl.rephrasing import Rephrasing, shuffled

_WORDS = {
    "at": ("You are at ", "You stand at "),
    "goal": ("The goal is at ", "The goal lies at ", "Your goal is at "),
    "walls": ("Walls: ", "There are walls to these sides: "),
}
"""What a sentence is about -> how it may begin; the environment's own way first."""
_CELL = re.compile(r"row [1-9][0-9]*, column [1-9][0-9]*")
_SIDES = frozenset(("north", "east", "south", "west"))


def _vary(observation: str, chance: random.Random) -> str:
    fixed, told = _read(observation)
    sentences = [_sentence(about, rest, chance) for about, rest in shuffled(list(told.items()), chance)]
    return " ".join([*fixed, *sentences])


def _meaning(observation: str) -> Hashable:
    fixed, told = _read(observation)
    for about, rest in told.items():
        if about != "walls" and not _CELL.fullmatch(rest):
            raise ValueError(f"the maze never names a cell {rest!r}")
        if about == "walls" and rest != "none" and not _SIDES.issuperset(rest.split(", ")):
            raise ValueError(f"the maze never has walls {rest!r}")
    said = {about: tuple(sorted(rest.split(", "))) if about == "walls" else rest for about, rest in told.items()}
    return " ".join(fixed), tuple(sorted(said.items(), key=lambda one: one[0]))


def _read(observation: str) -> tuple[list[str], dict[str, str]]:
    """The sentences that stay, and what the others say, by what they are about."""
    fixed: list[str] = []
    told: dict[str, str] = {}
    for sentence in observation.split(". "):
        whole = sentence.removesuffix(".")
        about = next((about for about, ways in _WORDS.items() if whole.startswith(ways)), None)
        if about is None:
            fixed.append(f"{whole}.")
        elif about in told:
            raise ValueError(f"the maze says once what {whole!r} says")
        else:
            told[about] = whole.removeprefix(next(way for way in _WORDS[about] if whole.startswith(way)))
    return fixed, told


def _sentence(about: str, rest: str, chance: random.Random) -> str:
    if about == "walls":
        rest = ", ".join(shuffled(rest.split(", "), chance))
    return f"{chance.choice(_WORDS[about])}{rest}."


REPHRASING = Rephrasing(_vary, _meaning)
