"""A mixture has the shares that were asked for and ids of its own; trained on with a curriculum, it adapts.

Two environments in one file: what verl's loader gets of them, batch by batch, also after a resume.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter

import datasets
import pytest
from doubles import Guess, name_of
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from agentgym_rl.data.parquet import read_tasks, write_tasks
from agentgym_rl.environments.registry import opened
from agentgym_rl.episode import play
from agentgym_rl.errors import ConfigurationError, DataError
from agentgym_rl.policy import ExpertPolicy, RandomPolicy
from agentgym_rl.task import Task
from data_preprocess import mix as mixing
from data_preprocess.mix import counts_of, mix
from verl_ext.curriculum import Curriculum, played_tasks
from verl_ext.curriculum_loader import curriculum_loader
from verl_ext.episode_metrics import episode_metrics

GUESS = name_of(Guess)


def mazes(count: int, split: str = "train") -> list[Task]:
    return [Task(f"maze-{i}", "maze", {"size": 3}, seed=i, split=split) for i in range(count)]


def guesses(count: int, split: str = "train") -> list[Task]:
    return [Task(f"guess-{i}", GUESS, seed=i, split=split) for i in range(count)]


# ---- shares


def test_counts_by_hand():
    assert counts_of({"a": 3, "b": 1}, 8) == {"a": 6, "b": 2}
    # 10 * (1/3, 1/3, 1/3) = 3.33 each; one is left over, for the first
    assert counts_of({"a": 1, "b": 1, "c": 1}, 10) == {"a": 4, "b": 3, "c": 3}
    # 10 * (0.56, 0.44) = 5.6, 4.4: the larger remainder is rounded up
    assert counts_of({"a": 0.56, "b": 0.44}, 10) == {"a": 6, "b": 4}


@given(st.lists(st.floats(0.5, 10), min_size=1, max_size=5), st.integers(120, 500))
def test_counts_add_up_and_are_within_one_of_their_share(weights, size):
    named = {str(i): weight for i, weight in enumerate(weights)}
    counts = counts_of(named, size)
    assert sum(counts.values()) == size
    assert all(abs(counts[name] - size * weight / sum(weights)) < 1 for name, weight in named.items())


def test_a_mixture_has_its_shares_and_each_task_as_often_as_the_others_of_its_part():
    mixed = mix({"m": mazes(4), "g": guesses(30)}, {"m": 1, "g": 1}, size=20, seed=0)
    assert Counter(task.environment for task in mixed) == {"maze": 10, GUESS: 10}
    times = Counter(task.seed for task in mixed if task.environment == "maze")
    assert sorted(times.values()) == [2, 2, 3, 3]
    assert max(Counter(task.seed for task in mixed if task.environment == GUESS).values()) == 1
    assert {task.environment for task in mixed[:8]} == {"maze", GUESS}  # shuffled


@given(st.integers(1, 6), st.integers(1, 6), st.integers(2, 40), st.integers(0, 99))
def test_ids_are_unique_and_a_repeated_task_is_the_same_world(few, many, size, seed):
    mixed = mix({"m": mazes(few), "g": guesses(many)}, {"m": 1, "g": 1}, size, seed)
    assert len({task.id for task in mixed}) == len(mixed) == size
    for task in mixed:
        name, _, index = task.id.partition("~")[0].rpartition("-")
        assert (task.environment, task.seed) == ({"maze": "maze", "guess": GUESS}[name], int(index))


def test_an_id_that_is_taken_in_another_part_or_looks_like_a_repetition_is_passed_over():
    parts = {"x": [Task("t", "maze"), Task("t~2", "maze", seed=1)], "y": [Task("t", GUESS)]}
    mixed = mix(parts, {"x": 2, "y": 1}, size=3, seed=0)
    assert {task.id for task in mixed} == {"t", "t~2", "t~3"}
    assert {task.id for task in mixed if task.seed == 1} == {"t~2"}


def test_the_seed_decides_the_draw_and_the_order():
    def drawn(seed):
        return mix({"m": mazes(9), "g": guesses(9)}, {"m": 1, "g": 1}, size=8, seed=seed)

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize(
    ("parts", "weights", "size", "error", "message"),
    [
        ({"m": mazes(2)}, {"m": 0}, 2, ConfigurationError, "the weight of m must be above 0; given: 0"),
        ({"m": mazes(2)}, {"m": float("nan")}, 2, ConfigurationError, "given: nan"),
        ({"m": mazes(2), "g": guesses(2)}, {"m": 99, "g": 1}, 4, ConfigurationError, "g would give no task to a mix"),
        ({"m": []}, {"m": 1}, 2, DataError, "m has no task"),
        (
            {"m": mazes(2), "g": guesses(2, split="test")},
            {"m": 1, "g": 1},
            4,
            DataError,
            "a mixture is of one split; given: 'test' in g, 'train' in m",
        ),
    ],
)
def test_a_mixture_that_can_not_be_made_says_why(parts, weights, size, error, message):
    with pytest.raises(error) as raised:
        mix(parts, weights, size, seed=0)
    assert message in str(raised.value)


def test_the_command_line_mixes_files(tmp_path, capsys):
    write_tasks(mazes(5), tmp_path / "mazes.parquet")
    write_tasks(guesses(5), tmp_path / "guesses.parquet")
    out = tmp_path / "mixed.parquet"
    parts = [f"{tmp_path}/mazes.parquet=3", f"{tmp_path}/guesses.parquet"]
    mixing.main([*parts, "--size", "8", "--out", str(out)])
    assert Counter(task.environment for task in read_tasks(out)) == {"maze": 6, GUESS: 2}
    assert f"8 tasks: 2 {GUESS}, 6 maze" in capsys.readouterr().out
    mixing.main([*parts, "--out", str(out)])
    assert len(read_tasks(out)) == 10
    with pytest.raises(SystemExit):
        mixing.main([f"{tmp_path}/mazes.parquet=much", "--out", str(out)])
    assert "a part is written FILE or FILE=WEIGHT; given: " in capsys.readouterr().err


def test_a_part_may_be_json_lines(tmp_path):
    lines = [json.dumps({"id": f"own-{i}", "environment": "maze", "arguments": {"size": 3}}) for i in range(2)]
    (tmp_path / "own.jsonl").write_text("\n".join(lines))
    write_tasks(guesses(2), tmp_path / "guesses.parquet")
    out = tmp_path / "mixed.parquet"
    mixing.main([f"{tmp_path}/own.jsonl", f"{tmp_path}/guesses.parquet", "--out", str(out)])
    assert {task.id for task in read_tasks(out)} == {"own-0", "own-1", "guess-0", "guess-1"}


def test_a_part_is_a_file_and_its_weight():
    assert mixing._part("a/b.parquet=0.5") == ("a/b.parquet", 0.5)
    assert mixing._part("a/b.parquet") == ("a/b.parquet", 1.0)
    with pytest.raises(argparse.ArgumentTypeError):
        mixing._part("a/b.parquet=")


# ---- two environments in one file, under a curriculum


class Dataset:
    """verl's, as far as a loader sees it."""

    def __init__(self, path):
        self.dataframe = datasets.Dataset.from_list([{"task": task.to_json()} for task in read_tasks(path)])

    def __len__(self) -> int:
        return len(self.dataframe)

    def __getitem__(self, item: int) -> dict:
        return {"task": Task.from_json(self.dataframe[item]["task"])}


@pytest.fixture
def file(tmp_path):
    tasks = mix({"m": mazes(12), "g": guesses(12)}, {"m": 1, "g": 1}, size=24, seed=0)
    write_tasks(tasks, tmp_path / "mixed.parquet")
    return tmp_path / "mixed.parquet"


def loader_of(file, **curriculum):
    data = OmegaConf.create({"train_batch_size": 4, "seed": 1})
    return curriculum_loader(Dataset(file), Curriculum(**curriculum), data)


async def session(task: Task, number: int) -> dict:
    """What a session of a task says: mazes are always solved, numbers to guess in every other session."""
    async with opened(task.environment) as environment:
        solves = task.environment == "maze" or number % 2 == 0
        policy = ExpertPolicy(environment) if solves else RandomPolicy(environment, seed=number)
        played = await play(policy, environment, task)
    success = played.success if solves else False
    return {"task": task.id, "environment": task.environment, "success": success}


async def steps(iterator, sampler, batches: int) -> list[str]:
    """Draw batches, play each task in a group of 4, and tell the sampler; the ids that were drawn."""
    drawn = []
    for _ in range(batches):
        group_of = {}
        for task in next(iterator)["task"]:
            group_of[task.id] = [await session(task, g) for g in range(4)]
        for task, group in group_of.items():  # groups are never mixed: one task, hence one environment
            assert {(episode["task"], episode["environment"]) for episode in group} == {(task, group[0]["environment"])}
        sampler.update(played_tasks([episode for group in group_of.values() for episode in group]))
        drawn += group_of
    return drawn


async def test_draws_move_towards_the_environment_whose_success_is_neither_0_nor_1(file):
    loader, sampler = loader_of(file)
    assert sampler.metrics()["curriculum/draws/maze"] == 0.5
    for _ in range(4):
        await steps(iter(loader), sampler, batches=6)
    shares = sampler.metrics()
    # 12 mazes, mastered: 0.1 each once they were played; 12 numbers between the bounds: 1 each
    played = sum(sampler._sessions_N[sampler._environment_N == 1] > 0)
    mazes_weigh = 12 - 0.9 * int(played)
    assert played > 6
    assert shares["curriculum/draws/maze"] == pytest.approx(mazes_weigh / (12 + mazes_weigh))
    assert shares[f"curriculum/draws/{GUESS}"] == pytest.approx(12 / (12 + mazes_weigh))


async def test_shares_of_environments_hold_while_tasks_adapt_within_each(file):
    loader, sampler = loader_of(file, shares={"maze": 1, GUESS: 3})
    for _ in range(2):
        await steps(iter(loader), sampler, batches=6)
    assert sampler.metrics()["curriculum/draws/maze"] == pytest.approx(0.25)


async def test_the_weights_are_restored_on_resume(file):
    loader, sampler = loader_of(file)
    iterator = iter(loader)
    await steps(iterator, sampler, batches=3)
    state = loader.state_dict()
    expected = await steps(iterator, sampler, batches=3)

    resumed_loader, resumed = loader_of(file)
    resumed_loader.load_state_dict(state)
    assert await steps(iter(resumed_loader), resumed, batches=3) == expected
    assert resumed.metrics() == sampler.metrics()


async def test_metrics_are_told_per_environment(file):
    tasks = read_tasks(file)[:10]
    figures = {"turns": 1, "invalid_turns": 0, "cut_replies": 0, "policy_seconds": 1.0, "environment_seconds": 1.0}
    rest = {"turn_seconds": [1.0], "wall_seconds": 2.0, "stop": "terminated", "reward_parts": {}}
    metrics = episode_metrics([await session(task, 0) | figures | rest for task in tasks])
    counts = Counter(task.environment for task in tasks)
    assert {name: metrics[f"episode/{name}/count"] for name in counts} == counts
    assert {metrics[f"episode/{name}/success"] for name in counts} == {1.0}
