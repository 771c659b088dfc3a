"""Two games with their action models, which the tests' OpenEnv servers serve, the real one and its double."""

from __future__ import annotations

import datetime
import random
from typing import Any, Literal

from pydantic import Field, field_validator


class Numbers:
    """Guess a number from 1 to 8 within six guesses; an action is a text."""

    def reset(self, seed=None, **options):
        self.secret = options.get("secret") or random.Random(seed).randint(1, 8)
        self.guesses = 0
        return {"text": "Guess a number from 1 to 8."}, None, False

    def step(self, action):
        text = action["text"]
        if text == "raise":
            raise RuntimeError("the number is lost")
        self.guesses += 1
        if len(text) != 1 or text not in "12345678":
            return {"text": "that is no number"}, 0.0, self.guesses == 6
        if int(text) == self.secret:
            return {"text": ""}, 1.0, True
        return {"text": "higher" if int(text) < self.secret else "lower"}, 0, self.guesses == 6


class Walk:
    """Walk from 0 to a goal on a line; an action has a direction and a number of steps."""

    def reset(self, seed=None):
        self.goal, self.at = random.Random(seed).choice((-3, 3)), 0
        return {"at": 0, "goal": self.goal}, None, False

    def step(self, action):
        self.at += action["steps"] * (1 if action["direction"] == "right" else -1)
        return {"at": self.at, "goal": self.goal}, float(self.at == self.goal), self.at == self.goal


GAMES = {"Numbers": Numbers, "Walk": Walk}


def action_model(name: str, base: Any) -> Any:
    """The model of a game's actions, on OpenEnv's own base class or another."""

    class Say(base):
        text: str = Field(description="a number from 1 to 8")

        @field_validator("text")
        @classmethod
        def no_shouting(cls, text):  # no schema tells of it
            assert "!" not in text, "don't shout"
            return text

    class Move(base):
        direction: Literal["left", "right"]
        steps: int = Field(default=1, ge=1, le=3)
        day: datetime.date | None = None

    return {"Numbers": Say, "Walk": Move}[name]
