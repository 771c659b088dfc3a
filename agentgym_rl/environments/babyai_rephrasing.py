"""BabyAI's observations in another order: what is seen is a set of things, and a place may be told either way round.

"red ball two ahead one left, wall three ahead" and "wall three ahead, red ball one left two ahead" mean the same. The
mission, and the answer to what is no action, stay as they are.
"""

from __future__ import annotations

import random
import re
from collections.abc import Hashable

from agentgym_rl.rephrasing import Rephrasing, shuffled

_MISSION = re.compile(r"(Mission: [^.]*\. )?(.*)", re.DOTALL)
_REFUSAL = "Not an action. "
_NUMBER = "(?:one|two|three|four|five|six)"
_AHEAD, _SIDE = f"{_NUMBER} ahead", f"{_NUMBER} (?:left|right)"
_NAME = "(?:(?:open|closed|locked) )?[a-z]+ (?:door|key|ball|box)"
_BOTH = re.compile(f"({_NAME}) (?:({_AHEAD}) ({_SIDE})|({_SIDE}) ({_AHEAD}))")
_ONE = re.compile(f"({_NAME}) ({_AHEAD}|{_SIDE})|(wall) ({_AHEAD})|(carrying) ({_NAME})|(nothing)")


def _vary(observation: str, chance: random.Random) -> str:
    if observation.startswith(_REFUSAL):
        return observation
    mission, things = _split(observation)
    return mission + ", ".join(shuffled([_turned(thing, chance) for thing in things], chance))


def _meaning(observation: str) -> Hashable:
    if observation.startswith(_REFUSAL):
        return observation
    mission, things = _split(observation)
    return mission, tuple(sorted(map(_said, things)))


def _split(observation: str) -> tuple[str, list[str]]:
    match = _MISSION.fullmatch(observation)
    assert match is not None  # it takes any text
    return match[1] or "", match[2].split(", ")


def _turned(thing: str, chance: random.Random) -> str:
    match = _BOTH.fullmatch(thing)
    if match is None or chance.random() < 0.5:
        return thing
    name, *places = filter(None, match.groups())
    return " ".join([name, *reversed(places)])


def _said(thing: str) -> tuple[str, ...]:
    match = _BOTH.fullmatch(thing) or _ONE.fullmatch(thing)
    if match is None:
        raise ValueError(f"BabyAI never says {thing!r}")
    name, *places = filter(None, match.groups())
    return name, *sorted(places)


REPHRASING = Rephrasing(_vary, _meaning)
