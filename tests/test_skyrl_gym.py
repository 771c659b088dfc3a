"""skyrl-gym: its rewards by hand, ends told apart, a database and a retrieval server that are real."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys

import pytest
from doubles_skyrl_gym import Retrieval, register_countdown
from test_hostile_replies import HOSTILE

from agentgym_rl.data.parquet import read_tasks
from agentgym_rl.data.rows import SUFFIXES, rows_of
from agentgym_rl.environments import registry
from agentgym_rl.environments.contract import check_environment
from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.environments.skyrl_gym import SkyRLGym
from agentgym_rl.environments.skyrl_gym_world import INSTALL
from agentgym_rl.errors import ConfigurationError, DataError, EnvironmentFailed, Manner, ToolFailed
from agentgym_rl.messages import assistant
from agentgym_rl.task import Task
from data_preprocess import skyrl_gym as data_set

installed = importlib.util.find_spec("skyrl_gym") is not None
here = pytest.mark.skipif(not installed, reason='not installed here: pip install "openmanus-rl[skyrl-gym]"')
somewhere = pytest.mark.skipif(
    not installed and interpreter_of("skyrl-gym") is None, reason=f"skyrl-gym is not installed: {INSTALL}"
)

ANY = [{"role": "system", "content": "Think."}, {"role": "user", "content": "What is it?"}]
TRUE_QUERY = "select name from p where price > 72"


def task(env: str, extras: dict, config: dict | None = None, **arguments) -> Task:
    given = {"env": env, "prompt": ANY, "extras": extras, **({"config": config} if config else {}), **arguments}
    return Task("t", "skyrl-gym", given)


def truth(ground_truth, **extras) -> dict:
    return {"reward_spec": {"method": "rule", "ground_truth": ground_truth}, **extras}


def started(*given, **arguments) -> SkyRLGym:
    game = SkyRLGym()
    game.reset(task(*given, **arguments))
    return game


def say(game: SkyRLGym, *replies: str):
    """The result of the last reply."""
    for reply in replies:
        result = game.step(assistant(reply))
    return result


def said(messages) -> str:
    return "".join(message.content for message in messages)


def end_of(result) -> tuple:
    return result.reward, result.terminated, result.truncated, result.success


@pytest.fixture
def database(tmp_path) -> dict:
    """The config of a database "shop": 50 products, whose price is 1.5 times their id."""
    file = tmp_path / "spider" / "database" / "shop" / "shop.sqlite"
    file.parent.mkdir(parents=True)
    with sqlite3.connect(file) as connection:
        connection.execute("create table p(id int, name text, price real)")
        connection.executemany("insert into p values(?, ?, ?)", [(i, f"n{i}", i * 1.5) for i in range(50)])
    connection.close()
    return {"db_path": str(tmp_path)}


SHOP = truth(TRUE_QUERY, db_id="shop", data="spider")


@pytest.fixture
def retrieval():
    server = Retrieval()
    yield server
    server.close()


# ---- text2sql


@here
def test_a_query_is_answered_and_the_rows_of_the_true_one_are_worth_1(database):
    game = started("text2sql", SHOP, database)
    seen = said(say(game, "<think>Let me look.</think><sql>select * from p limit 1</sql>").observation)
    assert seen.strip() == (
        "<observation> 0  1   2\n 0 n0 0.0\n"
        "<reminder>You have 4 turns left to complete the task.</reminder></observation>"
    )
    # n49 costs 73.5, n48 exactly 72
    last = say(game, "<think>By id.</think><solution>select name from p where id = 49</solution>")
    assert end_of(last) == (1.0, True, False, True)


@here
@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        ("<think>t</think><solution>select name from p where price >= 72</solution>", 0.0),
        ("<think>t</think><solution>no query</solution>", 0.0),
        (f"<solution>{TRUE_QUERY}</solution>", -1.0),  # without a thought
    ],
)
def test_a_wrong_solution_terminates_without_success(reply, reward, database):
    assert end_of(say(started("text2sql", SHOP, database), reply)) == (reward, True, False, False)


@here
def test_the_limit_of_turns_truncates_and_a_wrong_solution_in_the_last_turn_does_not(database):
    look, wrong = "<think>t</think><sql>select 1</sql>", "<think>t</think><solution>select 1</solution>"
    for last, expected in ((look, (-1.0, False, True, False)), (wrong, (0.0, True, False, False))):
        assert end_of(say(started("text2sql", SHOP, database, max_turns=2), look, last)) == expected


@here
def test_the_environment_is_told_its_limit_of_turns(database):
    assert "You have 2 turns left" in said(say(started("text2sql", SHOP, database, max_turns=3), "?").observation)


@here
def test_no_query_changes_the_database(database):
    game = started("text2sql", SHOP, database, max_turns=9)
    say(game, "<sql>drop table p</sql>", "<sql>delete from p</sql>", "<sql>commit</sql>")
    assert "50" in said(say(game, "<sql>select count(*) from p</sql>").observation)


# ---- search


SEARCH = truth({"target": ["Hiroyuki Imabayashi", "Imabayashi"]})


@here
def test_a_search_asks_the_server_and_the_answer_is_compared_without_case_and_articles(retrieval):
    game = started("search", SEARCH, {"search_url": retrieval.url, "topk": 1}, max_turns=3)
    seen = said(say(game, "<search>who made Sokoban in 1981</search>").observation)
    assert retrieval.queries == ["who made Sokoban in 1981"]
    assert "Doc 1: Sokoban was made in 1981 by Hiroyuki Imabayashi." in seen
    assert end_of(say(game, "<answer>the  IMABAYASHI.</answer>")) == (1.0, True, False, True)


@here
def test_a_reply_without_a_search_is_not_sent_and_the_limit_truncates(retrieval):
    game = started("search", SEARCH, {"search_url": retrieval.url}, max_turns=2)
    assert "<information></information>" in said(say(game, "I wonder.").observation)
    assert retrieval.queries == []
    assert end_of(say(game, "I still do.")) == (0.0, False, True, False)


@here
def test_a_server_that_is_not_there_is_a_failure_before_the_first_turn(retrieval):
    retrieval.close()
    with pytest.raises(ToolFailed, match=f"the retrieval server {retrieval.url} can't be reached") as raised:
        started("search", SEARCH, {"search_url": retrieval.url})
    assert raised.value.manner is Manner.CRASHED


@here
def test_a_server_that_fails_is_a_failure_and_no_observation_and_a_document_may_quote_one(retrieval):
    game = started("search", SEARCH, {"search_url": retrieval.url, "topk": 3}, max_turns=4)
    assert "A quote: " in said(say(game, "<search>a quote: none</search>").observation)
    retrieval.status = 404
    with pytest.raises(ToolFailed, match="the retrieval server failed: .*404"):
        say(game, "<search>Wordle</search>")


@here
def test_an_address_that_is_none_is_named():
    with pytest.raises(ConfigurationError, match="a retrieval server's address is a URL; given: 'here'"):
        started("search", SEARCH, {"search_url": "here"})


# ---- the others


@here
@pytest.mark.parametrize(
    ("env", "extras", "reply", "reward"),
    [
        ("gsm8k", truth("1200"), "So #### 1,200", 1.0),
        ("gsm8k", truth("1200"), "So #### 1201", 0.0),
        ("gsm8k", truth("1200"), "1200", 0.0),
        ("aime", {"reward_model": {"ground_truth": "204"}}, "Answer: 204", 1.0),
        ("aime", {"reward_model": {"ground_truth": "204"}}, "204", -1.0),
    ],
)
def test_a_problem_is_answered_once(env, extras, reply, reward):
    assert end_of(say(started(env, extras), reply)) == (reward, True, False, reward == 1.0)


@here
def test_a_problem_may_be_tried_again_and_a_number_earns_its_part_of_a_fifth():
    game = started("gsm8k_multi_turn", truth("7"), max_turns=4)
    first = say(game, "#### 6")
    assert (first.reward, first.terminated) == (0.2 / 4, False)
    assert "tentative numeric answer" in said(first.observation)
    assert end_of(say(game, "six", "#### 7")) == (1.0, True, False, True)
    assert end_of(say(started("gsm8k_multi_turn", truth("7"), max_turns=1), "#### 6")) == (0.2, False, True, False)


@here
def test_searchcode_runs_python_beside_the_search(retrieval, tmp_path, monkeypatch):
    from skyrl_gym.tools import SearchToolGroup

    monkeypatch.setattr(SearchToolGroup.__init__, "__defaults__", (retrieval.url, 1, 5, False))
    (tmp_path / "python").symlink_to(sys.executable)  # it runs what is called so
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    game = started("searchcode", truth("42"), max_turns=4)
    assert said(say(game, "<tool><python>print(6 * 7)</python></tool>").observation) == "42"
    assert "Doc 1: Wordle" in said(say(game, "<tool><search>Wordle</search></tool>").observation)
    assert end_of(say(game, "<solution>#### 42</solution>")) == (1.0, True, False, True)


@here
@pytest.mark.slow
@pytest.mark.parametrize(("operation", "reward"), [("+", 1.0), ("-", 0.0)])
def test_a_program_is_run_on_its_tests(operation, reward):
    tests = [{"input": "2 3\n", "output": "5\n", "testtype": "stdin"}]
    code = f"```python\na, b = map(int, input().split())\nprint(a {operation} b)\n```"
    assert end_of(say(started("lcb", truth(json.dumps(tests))), code)) == (reward, True, False, reward == 1.0)


@here
@pytest.mark.parametrize("env", ["text2sql", "search", "gsm8k", "gsm8k_multi_turn", "aime"])
def test_the_ground_truth_solves(env, database, retrieval):
    extras = {"text2sql": SHOP, "search": SEARCH, "aime": {"reward_model": {"ground_truth": "204"}}}
    config = {"text2sql": database, "search": {"search_url": retrieval.url}}
    game = started(env, extras.get(env, truth("7")), config.get(env), max_turns=3)
    assert end_of(say(game, game.expert_action())) == (1.0, True, False, True)


@here
@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("env", ["text2sql", "search", "gsm8k", "gsm8k_multi_turn", "aime"])
def test_a_hostile_reply_solves_nothing(env, reply, database, retrieval):
    extras = {"text2sql": SHOP, "search": SEARCH, "aime": {"reward_model": {"ground_truth": "204"}}}
    config = {"text2sql": database, "search": {"search_url": retrieval.url}}
    tag = {"text2sql": "sql", "search": "search"}.get(env, "answer")
    for text in (reply, f"<{tag}>{reply[:100_000]}</{tag}>"):
        game = started(env, extras.get(env, truth("7")), config.get(env), max_turns=3)
        result = say(game, text)
        assert not result.success
        assert result.terminated or said(result.observation)


# ---- an environment of one's own


@pytest.fixture
def count_down():
    register_countdown()


def counting(config: dict | None = None, start: int = 1, **arguments) -> SkyRLGym:
    return started("count-down", {"start": start}, {"role": "tool", **(config or {})}, **arguments)


@here
def test_any_registered_environment_is_played_with_its_own_prompt_config_and_success(count_down):
    game = SkyRLGym()
    opening = game.reset(task("count-down", {"start": 1}, {"role": "tool"}, success=0.75))
    assert [(message.role, message.content) for message in opening] == [("user", "What is it?")]
    assert game.instructions == "Count down.\n\nThink."
    first = say(game, "1")
    assert [(message.role, message.content) for message in first.observation] == [("tool", "Say 0.")]
    assert end_of(say(game, "0")) == (0.75, True, False, True)


@here
def test_a_module_that_registers_an_environment_is_imported(tmp_path, monkeypatch):
    (tmp_path / "registers_it.py").write_text("from doubles_skyrl_gym import *\nregister_countdown()\n")
    monkeypatch.syspath_prepend(tmp_path)
    game = started("registers_it:count-down", {"start": 0}, {"role": "user"}, success=0.75)
    assert say(game, "0").success


@here
def test_less_than_the_success_at_the_limit_is_cut_off(count_down):
    assert end_of(say(counting(max_turns=2), "0", "0")) == (0.0, False, True, False)
    game = counting(max_turns=2)
    assert end_of(say(game, "1", "0")) == (0.75, False, True, False)  # it can't be asked why it ended


@here
def test_an_observation_is_never_empty_while_the_episode_goes_on(count_down):
    assert said(say(counting({"silent": True}), "1").observation) == "(nothing)"


@here
def test_an_observation_in_the_policys_own_name_is_an_error(count_down):
    with pytest.raises(EnvironmentFailed, match="skyrl-gym gave one of the assistant"):
        say(counting({"role": "assistant"}), "1")


@here
def test_an_environment_of_ones_own_has_no_expert(count_down):
    with pytest.raises(ConfigurationError, match="skyrl-gym's 'count-down' has no expert; those with one: aime, gsm8k"):
        counting().expert_action()


# ---- arguments


@here
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"env": None}, "a skyrl-gym task needs the argument 'env', such as 'text2sql'; given: None"),
        ({"env": "gsm8"}, "skyrl-gym has no environment 'gsm8'; did you mean 'gsm8k'?"),
        ({"env": "no_such_module:gsm8k"}, "the module of 'no_such_module:gsm8k' can't be imported"),
        ({"extras": {}}, "can't make 'gsm8k' with config {} and the extras (none): AssertionError: reward_spec field"),
        ({"extras": 3}, "the argument 'extras' must be an object; given: 3"),
        ({"config": [1]}, "the argument 'config' must be an object; given: [1]"),
        (
            {"env": "text2sql", "config": {"db_pat": "/"}},
            "the config of 'text2sql' has no 'db_pat'; did you mean 'db_path'",
        ),
        ({"env": "text2sql", "extras": SHOP}, "FileNotFoundError: Database file not found at"),
        ({"env": "text2sql", "extras": {**SHOP, "data": "x"}}, "NotImplementedError"),
        ({"env": "search", "config": {"topk": "many"}}, "can't make 'search' with config {'topk': 'many'}"),
        ({"success": "much"}, "the argument 'success' must be a number; given: 'much'"),
        ({"prompt": None}, "the argument 'prompt' must be a text or a list of messages; given: None"),
        ({"prompt": ANY[:1]}, "system messages, then user messages, one at least; given: system"),
        ({"prompt": [*ANY, {"role": "assistant", "content": "Hm."}]}, "given: system, user, assistant"),
        ({"max_turns": 0}, "'max_turns' must be a whole number of at least 1; given: 0"),
        ({"turns": 3}, "a skyrl-gym task has no 'turns'"),
    ],
)
def test_wrong_arguments_are_named(changed, message):
    arguments = {"env": "gsm8k", "prompt": "What is it?", "extras": truth("7"), **changed}
    with pytest.raises(ConfigurationError) as raised:
        SkyRLGym().reset(Task("t", "skyrl-gym", arguments))
    assert message in str(raised.value)


def test_importing_needs_no_package_and_using_it_without_says_what_to_install():
    code = (
        "import sys; sys.modules['skyrl_gym'] = None\n"
        "from agentgym_rl.environments import skyrl_gym_world, skyrl_gym\n"
        "try: skyrl_gym_world.make_world('gsm8k', {}, {})\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"ConfigurationError skyrl-gym needs 'skyrl_gym': {INSTALL}\n"


# ---- processes


@somewhere
async def test_an_interpreter_of_its_own_plays_the_same(monkeypatch, database):
    """In a worker that gets this project's core alone; this interpreter will do, if there is no other."""
    monkeypatch.setenv("OPENMANUS_PYTHON_SKYRL_GYM", interpreter_of("skyrl-gym") or sys.executable)
    async with registry.opened("skyrl-gym") as environment:
        await environment.reset(task("text2sql", SHOP, database))
        assert environment.instructions == "Think."
        assert (await environment.step(assistant(await environment.expert_action()))).success


@somewhere
def test_rows_come_in_the_same_order_in_every_process(database):
    async def rows() -> str:
        async with registry.opened("skyrl-gym") as environment:
            await environment.reset(task("text2sql", SHOP, database))
            return said((await environment.step(assistant("<sql>select name from p</sql>"))).observation)

    assert asyncio.run(rows()) == asyncio.run(rows())


@somewhere
@pytest.mark.slow
async def test_skyrl_gym_keeps_the_environment_contract(database, retrieval):
    tasks = [
        task("text2sql", SHOP, database),
        task("search", SEARCH, {"search_url": retrieval.url}, max_turns=2),
        task("gsm8k_multi_turn", truth("7"), max_turns=2),
    ]
    (await check_environment("skyrl-gym", tasks)).raise_if_failed()


# ---- the data set


def written(tmp_path, rows) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def row(number: int, **changed) -> dict:
    return {
        "data_source": "mine",
        "prompt": [{"role": "user", "content": f"What is {number} + 1?"}],
        "env_class": "gsm8k",
        "reward_spec": {"method": "rule", "ground_truth": str(number + 1)},
        "extra_info": {"index": number},
        **changed,
    }


@here
def test_a_file_of_skyrl_becomes_tasks_that_are_played_and_no_row_is_in_two_splits(tmp_path, capsys):
    rows = [row(number) for number in range(6)] + [row(0, extra_info={"index": 6})]
    sizes = ["--train", "3", "--validation", "1", "--test", "2", "--max-turns", "1"]
    data_set.main(["--rows", written(tmp_path, rows), "--out", str(tmp_path), *sizes])
    tasks = [t for split in ("train", "validation", "test") for t in read_tasks(tmp_path / f"{split}.parquet")]
    openings = set()
    for one in tasks:
        game = SkyRLGym()
        openings.add(said(game.reset(one)))
        assert say(game, game.expert_action()).success
    assert openings == {f"What is {number} + 1?" for number in range(6)}
    assert {one.arguments["max_turns"] for one in tasks} == {1}
    assert "3 tasks" in capsys.readouterr().out


def test_rows_take_the_environment_and_config_of_the_command_line(tmp_path):
    path = written(tmp_path, [row(1, env_class=None)])
    given = ["--rows", path, "--out", str(tmp_path), "--train", "1", "--validation", "0", "--test", "0"]
    data_set.main([*given, "--env", "text2sql", "--config", '{"db_path": "/data"}'])
    (only,) = read_tasks(tmp_path / "train.parquet")
    assert (only.arguments["env"], only.arguments["config"]) == ("text2sql", {"db_path": "/data"})
    assert set(only.arguments["extras"]) == {"data_source", "reward_spec", "extra_info"}
    assert set(only.arguments) == {"prompt", "extras", "env", "config"}


def test_a_limit_of_0_turns_is_not_taken_for_the_environments_own(tmp_path):
    sizes = ["--train", "1", "--validation", "0", "--test", "0"]
    given = ["--rows", written(tmp_path, [row(1)]), "--out", str(tmp_path), *sizes]
    data_set.main([*given, "--max-turns", "0"])
    (only,) = read_tasks(tmp_path / "train.parquet")
    assert only.arguments["max_turns"] == 0
    assert "config" not in only.arguments
    with pytest.raises(ConfigurationError, match="'max_turns' must be a whole number of at least 1; given: 0"):
        SkyRLGym().reset(only)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [row(1, env_class=None)],
            "line 1: a row needs 'prompt' and 'env_class' (or --env); given: data_source, prompt",
        ),
        ([row(1), {}], "line 2: a row needs 'prompt'"),
        ([row(1), row(1)], "skyrl-gym has 1 different tasks; 2 were asked for"),
        ([3], "line 1: a row is a JSON object; given: int"),
    ],
)
def test_rows_that_are_no_tasks_are_named(rows, message, tmp_path):
    with pytest.raises(DataError) as raised:
        data_set.build(rows_of(written(tmp_path, rows)), {}, {"train": 1, "test": 1}, 0)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--rows", "rows.txt"], f"--rows names a file that ends in {', '.join(SUFFIXES)}; given: rows.txt"),
        (["--rows", "rows.jsonl", "--config", "[]"], "--config must be a JSON object; given: []"),
    ],
)
def test_a_wrong_command_line_is_named(given, message, tmp_path):
    with pytest.raises(ConfigurationError) as raised:
        data_set.main([*given, "--out", str(tmp_path)])
    assert message in str(raised.value)
