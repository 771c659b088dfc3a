"""reasoning-gym: questions without end from 105 generators, each with a scorer of its own; one turn.

Questions, right answers and scores are the package's own; what a reply answers, and that no answer is run as code, is
in `reasoning_gym_answers`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from agentgym_rl.environment import Facts, StepResult
from agentgym_rl.environments.reasoning_gym_answers import TAG, answer_in, read_literals_only, refusal
from agentgym_rl.environments.replayed import Replayed
from agentgym_rl.errors import ConfigurationError, did_you_mean, require_allowed_keys
from agentgym_rl.task import Task

INSTALL = (
    'pip install "openmanus-rl[reasoning-gym]", or name an interpreter that has it: '
    "OPENMANUS_PYTHON_REASONING_GYM=/path/to/python"
)
_EXAMPLES = ("possible_answer", "example_answer", "example_correct_answer")
"""Where a question that many answers solve has one of them, in its metadata."""


class ReasoningGym(Replayed):
    """Answer a question of logic, arithmetic, algebra, geometry, graphs, algorithms, code, games or puzzles.

    Task: `arguments` holds `dataset` ("leg_counting", ...; the package's 105 names, without "composite", which
        `data_preprocess/reasoning_gym.py` stands in for) and, if wanted, `config` (fields of the dataset's own config,
        which set its difficulty; what JSON has no values for keeps its default) and `max_turns` (default 1). The seed
        draws the question.
    Actions: a reply that gives the final answer between <answer> and </answer>; the last pair of tags counts. A reply
        without is not valid, nor is an answer of more than 20,000 characters, or one to a question of arithmetic or
        algebra that is no formula; with `max_turns` above 1 it may then be said again.
    Observations: the question; nothing of the answer.
    Reward: the package's score from 0 to 1. Some datasets give part of it for a wrong answer (0.01 for any,
        0.05 for one of the right form, or by its distance). What a scorer can't read is 0.
    End: terminated by an answer, with success where it scores 1; truncated after `max_turns` turns without one.
    Splits: the package has none; `data_preprocess/reasoning_gym.py`: no question is in two of them, though a
        template (gsm_symbolic) or riddle (arc_agi) may be.
    Expert: the package's answer, or its example of one (graph_color, propositional_logic, rubiks_cube). It scored 1
        on 2,056 of 2,100 questions, 20 a dataset: all but those of boxnet and rush_hour, which come without answer, and
        4 of intermediate_integration, which sympy left unsolved (`Integral`).
    Differs from the package: an answer is never run as Python. Its scorers of binary_matrix, n_queens, spiral_matrix
        and string_insertion `eval` what is no right answer (for up to half the reward), and five parse it with sympy's
        `parse_expr`; here the former read literals, and the latter get formulas only, so that e.g. `Integral(...)` is
        no answer to an integral. Left as it is: puzzle24 scores any four numbers from 1 to 10 that make 24.
    Process: a worker of its own, as three generators draw from the global `random` or numpy, and a formula may keep
        sympy busy until the deadline of a step ends it. It has 120 MB and starts in 1 to 4 s. A question takes 0.03 to
        60 ms, but of arc_agi 1.2 s, and of figlet_font, futoshiki, group_anagrams, knight_swap, sokoban, codeio,
        puzzle24, word_ladder and zebra_puzzles 0.2 to 0.5 s.
    Source: Stojanovski et al., Reasoning Gym, 2025, https://arxiv.org/abs/2505.24760; package `reasoning-gym`.
    Licence: Apache-2.0.

    An episode (time_intervals, seed 1):
        A system operation started at 18:54:51 and completed at 19:29:19. What was the operation duration? Answer in
            HH:MM:SS.
        > From 18:54:51 to 19:29:19 it is 34 minutes and 28 seconds. <answer>00:34:28</answer>
        (terminated, reward 1)
    """

    facts = Facts(
        reward_range=(0.0, 1.0),
        max_turns=1,
        expert_success=0.97,
        can_snapshot=True,
        domain="reasoning",
        source="https://arxiv.org/abs/2505.24760",
        licence="Apache-2.0",
    )
    instructions = (
        f"Answer the question. You may think first. Give the final answer, and nothing else, between <{TAG}> and "
        f"</{TAG}>."
    )
    own_process = True
    host_arguments = frozenset({"config"})

    def begin(self, task: Task) -> str:
        self._name, self._dataset = dataset_of(task)
        self._entry: Mapping[str, Any] = self._dataset[0]
        return self._entry["question"]

    def act(self, text: str) -> StepResult:
        answer = answer_in(text)
        if answer is None:
            return StepResult.going_on(f"There is no answer between <{TAG}> and </{TAG}>.", valid=False)
        refused = refusal(self._name, answer, self._entry["answer"])
        if refused:
            return StepResult.going_on(refused, valid=False)
        score = self._score(answer)
        return StepResult.at_end(score, success=score == 1.0)

    def expert_action(self) -> str:
        """The right answer; "unknown" where the package has none."""
        self.require_open("was asked for its expert")
        return f"<{TAG}>{_right_answer(self._entry)}</{TAG}>"

    def _score(self, answer: str) -> float:
        try:
            return float(self._dataset.score_answer(answer, self._entry))
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            return 0.0  # some scorers raise on what they can't read


def dataset_of(task: Task) -> tuple[str, Any]:
    """A task's dataset of one question, and its name.

    Raises:
        ConfigurationError: an unknown or wrong argument, or reasoning-gym is not installed.
    """
    require_allowed_keys(task.arguments, ("dataset", "config", "max_turns"), "a reasoning-gym task")
    name, config = task.arguments.get("dataset"), task.arguments.get("config", {})
    if not isinstance(name, str):
        raise ConfigurationError(
            f"a reasoning-gym task needs the argument 'dataset', such as 'leg_counting'; given: {name!r}"
        )
    if name not in dataset_names():
        raise ConfigurationError(f"reasoning-gym has no dataset {name!r}; {did_you_mean(name, dataset_names())}")
    if not isinstance(config, Mapping):
        raise ConfigurationError(f"the argument 'config' must be an object; given: {config!r}")
    factory = _factory()
    known = {field.name for field in fields(factory.DATASETS[name][1])} - {"seed", "size"}
    require_allowed_keys(config, known, f"the config of {name!r}")
    seed = task.seed % 2**32  # what numpy takes
    _seed_globals(seed)
    try:
        dataset = factory.create_dataset(name, **config, seed=seed, size=1)
    except (AssertionError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        raise ConfigurationError(f"reasoning-gym can't make {name!r} with {dict(config)}: {error}") from error
    read_literals_only(name, dataset)
    return name, dataset


@cache
def dataset_names() -> Sequence[str]:
    """Every dataset that asks questions of its own.

    Raises:
        ConfigurationError: reasoning-gym is not installed.
    """
    return sorted(set(_factory().DATASETS) - {"composite"})


@cache
def _factory() -> Any:
    try:
        from reasoning_gym import factory
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"reasoning-gym needs {str(error.name).partition('.')[0]!r}: {INSTALL}") from error
    return factory


def _seed_globals(seed: int) -> None:
    """A few generators draw from them."""
    import numpy

    random.seed(seed)
    numpy.random.seed(seed)


def _right_answer(entry: Mapping[str, Any]) -> str:
    if entry["answer"] is not None:
        return entry["answer"]
    metadata = entry["metadata"]
    example = next((metadata[name] for name in _EXAMPLES if name in metadata), "unknown")
    return example if isinstance(example, str) else json.dumps(example)
