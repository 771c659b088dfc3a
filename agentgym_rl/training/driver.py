"""Runs a plan, stage after stage; the same command again goes on wherever the last run was killed.

Invariant: a stage counts as done only after its command succeeded and what it makes is in place. A stage that was cut
off goes on by its own means where it has some (verl from its last checkpoint, `eval` from its rows), and starts over in
an empty folder where it has none. What is trained, played and selected is done by ordinary commands, each of which is
printed as it can be typed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.follow import follow
from agentgym_rl.training import launched
from agentgym_rl.training.checkpoints import link_policy, mend_tracker, newest_step
from agentgym_rl.training.locks import COMMAND_LOCK, driver_lock
from agentgym_rl.training.plan import Plan, Stage
from agentgym_rl.training.stages import CHECKPOINTS, Grpo, Play, Sft
from agentgym_rl.training.state import State


def train(plan: Plan, console: Console) -> None:
    """Run every stage that is not done.

    Raises:
        ConfigurationError: a stage failed; its name and its exit code, or the end of its log. Or the folder holds
            something else, the run of another plan, or another run at work.
    """
    state = State(plan.folder)
    state.require_same(plan)
    if all(map(state.is_done, plan.stages)):
        _say(console, f"nothing to do: all {len(plan.stages)} stages are done in {plan.folder}")
        return
    plan.folder.mkdir(parents=True, exist_ok=True)
    with driver_lock(plan.folder):
        state = State(plan.folder)  # again, now that nobody else writes it
        state.require_same(plan)
        state.create()
        for number, stage in enumerate(plan.stages, start=1):
            title = f"== {number}/{len(plan.stages)} {stage.name}"
            if state.is_done(stage):
                _say(console, f"{title}: done before")
                continue
            _say(console, f"{title}\n{shlex.join(stage.command)}")
            _prepare(stage, state)
            state.begin(stage)
            _run(stage, plan.folder, console)
            state.finish(stage)


def show(plan: Plan, console: Console) -> None:
    """Print every command, and run nothing."""
    state = State(plan.folder)
    state.require_same(plan)
    for stage in plan.stages:
        done = " (done)" if state.is_done(stage) else ""
        _say(console, f"# {stage.name}{done}\n{shlex.join(stage.command)}")


def _prepare(stage: Stage, state: State) -> None:
    """An empty folder, unless the stage was begun in it and goes on by its own means."""
    goes_on = isinstance(stage.work, Sft | Grpo | Play) and state.is_begun(stage)
    if not goes_on and stage.folder.exists():
        shutil.rmtree(stage.folder)
    stage.folder.mkdir(parents=True, exist_ok=True)


def _run(stage: Stage, root: Path, console: Console) -> None:
    command = [sys.executable, "-I", launched.__file__, str(root / COMMAND_LOCK), str(os.getpid()), *stage.command]
    if isinstance(stage.work, Sft | Grpo):
        _train_policy(stage, stage.work, command, console)
        return
    console.file.flush()
    process = subprocess.Popen(command)
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if code != 0:
        raise ConfigurationError(f"stage {stage.name!r} failed with exit code {code}: {shlex.join(stage.command)}")


def _train_policy(stage: Stage, work: Sft | Grpo, command: list[str], console: Console) -> None:
    """Train to the last step, and put the policy in its place. A training that had come to its end is not run again."""
    checkpoints = stage.folder / CHECKPOINTS
    mend_tracker(checkpoints, work.written_last)
    if (newest_step(checkpoints) or 0) < work.steps:
        try:
            follow(command, stage.folder / "metrics", stage.folder / "log.txt", work.steps, console)
        except ConfigurationError as error:
            raise ConfigurationError(f"stage {stage.name!r}: {error}") from error
    link_policy(checkpoints, work.policy_inside, work.policy_in(stage.folder))


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
