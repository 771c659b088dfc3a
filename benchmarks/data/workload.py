"""Trajectories of 20 turns as a language model's sampler leaves them, drawn from their number alone.

One in 20 says the same as an earlier one, and one in 20 nearly the same: each way of finding them must find as many.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from agentgym_rl.data.record import Provenance, Record
from agentgym_rl.messages import assistant, system, user
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import StopReason, Trajectory, Turn

TURNS = 20
EPISODES = 8
"""Of each task."""
WORDS = 200_000
REPLY_WORDS, OBSERVATION_WORDS, REPLY_TOKENS = 12, 40, 24
CHUNK = 256
"""Records that are made at a time."""


def chunks(size: int) -> Iterator[list[Record]]:
    """The first so many records."""
    for begin in range(0, size, CHUNK):
        yield [record(number) for number in range(begin, min(begin + CHUNK, size))]


def record(number: int) -> Record:
    copied, changed = number % 20 == 7, number % 20 == 13
    dice = random.Random(number - 5 if copied or changed else number)
    turns = [_turn(dice, place) for place in range(TURNS)]
    if changed:
        turns[3] = _turn(random.Random(number), 3)
    outcome = random.Random(-1 - number)
    task = Task(f"t{number // EPISODES}", "babyai", {"level": "GoToObj", "max_turns": TURNS}, seed=number // EPISODES)
    opening = (system(_text(dice, 60)), user(_text(dice, OBSERVATION_WORDS)))
    played = Trajectory(task, opening, tuple(turns), StopReason.TERMINATED, outcome.random() < 0.5, None, "f")
    return Record(f"r{number}", played, Provenance("collect", number % EPISODES, "server:m", {"temperature": 1.0}))


def _turn(dice: random.Random, place: int) -> Turn:
    at = dice.randrange(WORDS - REPLY_TOKENS)
    tokens = SampledTokens(_tokens()[0][at : at + REPLY_TOKENS], _tokens()[1][at : at + REPLY_TOKENS])
    reply = Reply(assistant(_text(dice, REPLY_WORDS)), True, tokens)
    reward = float(place == TURNS - 1)
    return Turn(reply, (user(_text(dice, OBSERVATION_WORDS)),), reward, info={"place": place})


def _text(dice: random.Random, words: int) -> str:
    at = dice.randrange(WORDS - words)
    return " ".join(_words()[at : at + words])


@cache
def _words() -> list[str]:
    dice = random.Random(0)
    return [f"word{dice.randrange(2000)}" for _ in range(WORDS)]


@cache
def _tokens() -> tuple[tuple[int, ...], tuple[float, ...]]:
    dice = random.Random(1)
    return tuple(dice.randrange(32_000) for _ in range(WORDS)), tuple(-dice.random() for _ in range(WORDS))
