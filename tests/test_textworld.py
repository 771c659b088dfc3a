"""TextWorld, played through its worker: generated games, what reaches them, their files, its data set.

The worker's Python is the one that OPENMANUS_PYTHON_TEXTWORLD names, or this one.
"""

import asyncio
import importlib.util

import pytest

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.environments import registry
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.episode import play
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.messages import assistant
from agentgym_rl.policy import ExpertPolicy
from agentgym_rl.task import Task
from data_preprocess import textworld as data_set

needs_textworld = pytest.mark.skipif(
    interpreter_of("textworld") is None and importlib.util.find_spec("textworld") is None,
    reason="needs the package 'textworld' here, or in the Python that OPENMANUS_PYTHON_TEXTWORLD names",
)


@pytest.fixture(scope="module", autouse=True)
def games(tmp_path_factory):
    """The folder of generated games."""
    folder = tmp_path_factory.mktemp("games")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENMANUS_TEXTWORLD_GAMES", str(folder))
        yield folder


def task(challenge="tw-coin_collector", parameters=None, seed=1, **arguments):
    given = {"challenge": challenge, "parameters": parameters or {"level": 2}}
    return Task("t", "textworld", {**given, **arguments}, seed=seed)


DENSE = {"challenge": "tw-simple", "parameters": {"rewards": "dense", "goal": "brief"}}


async def expert_episode(given):
    async with registry.opened("textworld") as environment:
        return await play(ExpertPolicy(environment), environment, given)


def said(result):
    return result.observation[0].content


@needs_textworld
async def test_the_expert_wins_a_game_and_its_text_has_no_prompt_or_status_line():
    trajectory = await expert_episode(task())
    assert trajectory.success
    assert [turn.reward for turn in trajectory.turns] == [0.0, 1.0]  # level 2: one step, then the coin
    texts = [message.content for message in trajectory.messages]
    assert any("There is a coin on the floor." in text for text in texts)
    assert not any(">" in text or "RESTART" in text or "\n\n\n" in text for text in texts)


@needs_textworld
async def test_rewards_are_shares_of_the_highest_score():
    trajectory = await expert_episode(task(**DENSE, seed=2))
    assert trajectory.success
    assert sum(turn.reward for turn in trajectory.turns) == pytest.approx(1)
    assert len({round(turn.reward, 6) for turn in trajectory.turns} - {0.0}) == 1  # each point is worth the same


@needs_textworld
@pytest.mark.parametrize("reply", ["", "take coin", "dance", "quit", "restart", "開門", "x" * 10**6])
async def test_what_is_not_allowed_now_is_refused_with_what_is(reply):
    async with registry.opened("textworld") as environment:
        await environment.reset(task())
        result = await environment.step(assistant(reply))
        allowed = await environment.actions()
    assert (result.valid, result.reward) == (False, 0.0)
    assert said(result) == f"That is no action here. Allowed: {', '.join(allowed)}."


@needs_textworld
async def test_a_game_is_made_once_and_a_file_of_it_plays_the_same(games):
    async with registry.opened("textworld") as environment:
        opening = await environment.reset(task(seed=9))
        (folder,) = [made for made in games.iterdir() if (made / "game.z8").stat().st_mtime == _newest(games)]
        written = (folder / "game.z8").stat().st_mtime_ns
        assert await environment.reset(task(seed=9)) == opening
        assert (folder / "game.z8").stat().st_mtime_ns == written
        from_file = await environment.reset(Task("t", "textworld", {"file": str(folder / "game.z8")}))
        assert from_file == opening
        assert await environment.reset(task(seed=10)) != opening


def _newest(folder):
    return max((made / "game.z8").stat().st_mtime for made in folder.iterdir())


@needs_textworld
async def test_two_workers_that_make_the_same_game_at_once_leave_one(games):
    before = len(list(games.iterdir()))
    await asyncio.gather(*(expert_episode(task(seed=77)) for _ in range(2)))
    assert len(list(games.iterdir())) == before + 1


@needs_textworld
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs `file` or `challenge`, one of them; given: {}"),
        ({"challenge": "tw-coins"}, "no TextWorld challenge 'tw-coins'; did you mean 'tw-"),
        ({"challenge": "tw-simple"}, "'tw-simple': the following arguments are required: --rewards, --goal"),
        ({"challenge": "tw-coin_collector", "parameters": {"level": "x"}}, "invalid int value: 'x'"),
        ({"challenge": "tw-coin_collector", "parameters": {"level": 999}}, "Expected level to be within [1-300]"),
        ({"challenge": "tw-coin_collector", "parameters": {"level": 2, "lvl": 1}}, "unrecognized arguments: --lvl 1"),
        ({"file": "/no/such.z8"}, "there is no TextWorld game '/no/such.z8'"),
    ],
)
async def test_wrong_arguments_are_named(arguments, message):
    async with registry.opened("textworld") as environment:
        with pytest.raises(ConfigurationError) as raised:
            await environment.reset(Task("t", "textworld", arguments))
    assert message in str(raised.value)


@needs_textworld
@pytest.mark.slow
def test_textworld_keeps_the_environment_contract():
    tasks = [task(max_turns=10), task(**DENSE, max_turns=16, seed=2)]
    report = asyncio.run(check_environment("textworld", tasks))
    report.raise_if_failed()
    assert all(result.passed for result in report.results), str(report)


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    from agentgym_rl.environments.textworld import TextWorld

    monkeypatch.setitem(__import__("sys").modules, "textworld", None)
    with pytest.raises(ConfigurationError, match=r'pip install "openmanus-rl\[textworld\]"'):
        TextWorld().reset(task())


# The data set


def test_every_task_has_a_seed_of_its_own_and_the_challenges_parameters(tmp_path):
    sizes = ["--train", "5", "--validation", "2", "--test", "3"]
    parameters = ["--challenge", "tw-cooking", "--parameters", "recipe=2", "open", "split=train"]
    data_set.main(["--out", str(tmp_path), *sizes, *parameters])
    rows = [row for path in sorted(tmp_path.iterdir()) for row in read_tasks(path)]
    assert len({row.seed for row in rows}) == len(rows) == 10
    assert all(row.arguments["parameters"] == {"recipe": 2, "open": True, "split": "train"} for row in rows)
    assert {row.split for row in rows} == {"train", "validation", "test"}
