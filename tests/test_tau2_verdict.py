"""tau2 with a customer: its expert in every domain, and its verdict beside that of the package's own orchestrator."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from doubles_tau2 import HAS_TAU2, Game, calling, task

from agentgym_rl.environments.interpreter import interpreter_of
from agentgym_rl.environments.tau2_world import INSTALL
from agentgym_rl.messages import ToolCall, assistant
from agentgym_rl.tool_calls import parse
from data_preprocess import tau2 as data_set

if not HAS_TAU2:
    pytest.skip(f"tau2 is not installed: {INSTALL}", allow_module_level=True)


@pytest.fixture(scope="module")
def game():
    game = Game()
    yield game
    game.close()


@pytest.mark.parametrize("format", ["hermes", "qwen3-coder", "llama-3", "react"])
def test_the_expert_hears_the_customer_out_and_solves_the_task_in_each_format(game, format):
    game.reset_to(task("1", domain="retail", user="scripted", tool_format=format))
    results = game.by_expert()
    assert (results[-1].terminated, results[-1].success) == (True, True)
    assert all(result.valid for result in results)


@pytest.mark.parametrize("domain", ["airline", "retail", "telecom"])
def test_the_expert_solves_some_tasks_of_each_domain(game, domain):
    for name in data_set.package_splits(domain)["test"][::20][: 1 if domain == "airline" else 2]:
        game.reset_to(task(name, domain=domain, user="scripted"))
        assert game.by_expert()[-1].success, name


@pytest.mark.slow  # five minutes
@pytest.mark.parametrize(("domain", "tasks"), [("airline", 50), ("retail", 114), ("telecom", 114)])
def test_the_expert_solves_every_task(game, domain, tasks):
    splits = data_set.package_splits(domain)
    names = [*splits["train"], *splits["test"]]
    assert len(names) == tasks
    failed = []
    for name in names:
        game.reset_to(task(name, domain=domain, user="scripted"))
        if not game.by_expert()[-1].success:
            failed.append(name)
    assert failed == []


def _random_play(game, chance, domain, name):
    """The messages of both sides, and the reward: the expert's play with wrong calls, given up early or untold."""
    game.reset_to(task(name, domain=domain, user="scripted"))
    said, result = [], None
    gives_up = False
    while result is None or not (result.terminated or result.truncated):
        action = "It is done." if gives_up else game.expert()
        calls = parse(action, "hermes").calls
        if calls and chance.random() < 0.15:
            calls = (ToolCall(calls[0].name, dict.fromkeys(calls[0].arguments, "nothing")),)
            action = calling(calls[0].name, **calls[0].arguments)
        if action.endswith("It is done.") and chance.random() < 0.3:
            action = "It is done."
        said.append(assistant("" if calls else action, calls))
        result = game.say(action)
        gives_up = gives_up or chance.random() < 0.04
    customer = json.loads(game.snapshot())[1]
    agent = [message.to_chat() for message in said[1:]]  # theirs begins with words of its own
    return {"domain": domain, "task": name, "agent": agent, "customer": customer}, result.reward


def test_the_verdict_is_that_of_the_packages_own_orchestrator(game):
    chance = random.Random(3)
    names = {"airline": ["7"], "retail": ["1", "4", "20", "33", "60"], "telecom": None}
    names["telecom"] = data_set.package_splits("telecom")["train"][:6]
    plays = [_random_play(game, chance, domain, name) for domain, some in names.items() for name in some]
    orchestrator = Path(__file__).with_name("doubles_tau2_orchestrator.py")
    theirs = subprocess.run(
        [interpreter_of("tau2") or sys.executable, str(orchestrator)],
        input=json.dumps([play for play, _ in plays]),
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        capture_output=True,
        text=True,
        check=True,
    )
    ours = [reward for _, reward in plays]
    assert json.loads(theirs.stdout) == ours
    assert set(ours) == {0.0, 1.0}


def test_no_tasks_reward_rests_on_a_judge():
    """Without a basis, a task's reward rests on databases and on what was told."""
    folder = data_set.package_folder() / "data/tau2/domains"
    for domain in ("airline", "retail", "telecom"):
        tasks = json.loads((folder / domain / "tasks.json").read_text())
        bases = {basis for one in tasks for basis in one["evaluation_criteria"].get("reward_basis", ())}
        assert bases <= {"DB", "COMMUNICATE", "ENV_ASSERTION", "ACTION"}
