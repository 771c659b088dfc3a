"""`import verl` in a fresh process: everything is registered, in any order of imports, and a failure is heard."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

REGISTERED = """
import json
from verl.plugin.platform.platform_manager import get_platform
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from verl.workers.rollout.base import get_rollout_class
from verl.workers.rollout.replica import RolloutReplicaRegistry
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.workers.engine.base import EngineRegistry
import verl.utils.device
import verl.workers.engine_workers

print(json.dumps({
    "platform": get_platform().device_name,
    "device": verl.utils.device.get_device_name(),
    "agent loop": _agent_loop_registry["environment"]["_target_"],
    "agent loop of tools": _agent_loop_registry["environment_tools"]["_target_"],
    "adapter": get_rollout_class("transformers", "async").__qualname__,
    "replica": RolloutReplicaRegistry.get("transformers").__qualname__,
    "trainer": get_trainer_cls("agentgym").__qualname__,
    "engines": [
        EngineRegistry.get_engine_cls(kind, backend).__qualname__
        for kind in ("language_model", "value_model") for backend in ("fsdp", "fsdp2")
    ],
    "process group": getattr(verl.workers.engine_workers.initialize_global_process_group_ray, "keywords", None),
}))
"""
EVERYWHERE = {
    "agent loop": "verl_ext.agent_loop.environment_loop.EnvironmentAgentLoop",
    "agent loop of tools": "verl_ext.agent_loop.tool_loop.EnvironmentToolsLoop",
    "adapter": "ServerAdapter",
    "replica": "TransformersReplica",
    "trainer": "EpisodeTrainer",
}
WITHOUT_A_GPU = {
    "platform": "cpu",
    "device": "cpu",
    "engines": ["CpuEngineWithLMHead"] * 2 + ["CpuEngineWithValueHead"] * 2,
    "process group": {"backend": "gloo"},
}
PROGRAMS = {
    "verl first": "import verl" + REGISTERED,
    # how a Ray worker meets us: it unpickles an actor class of ours before it has heard of verl
    "an actor class first": "import verl_ext.rollout.server" + REGISTERED,
    "a part is broken": "import sys; sys.modules['verl_ext.platform_cpu'] = None\nimport verl\nprint('went on')",
}


@pytest.fixture(scope="module")
def ended() -> dict[str, tuple[int, str, str]]:
    """Exit code, stdout and stderr of each program, run side by side."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")}
    started = {
        name: subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        for name, program in PROGRAMS.items()
    }
    outputs = {name: process.communicate(timeout=300) for name, process in started.items()}
    return {name: (started[name].returncode, *output) for name, output in outputs.items()}


@pytest.mark.parametrize("program", ["verl first", "an actor class first"])
def test_every_name_is_registered(ended, program):
    code, out, err = ended[program]
    assert code == 0, err
    expected = EVERYWHERE if torch.cuda.is_available() else EVERYWHERE | WITHOUT_A_GPU
    assert json.loads(out.splitlines()[-1]).items() >= expected.items()


def test_a_part_that_does_not_import_is_an_error_in_the_log(ended):
    code, out, err = ended["a part is broken"]
    assert (code, out.splitlines()[-1]) == (0, "went on"), err  # verl itself swallows it
    assert "openmanus-rl could not register with verl; its names will be unknown" in err
    assert err.lstrip().startswith("ERROR")
    assert "ModuleNotFoundError: import of verl_ext.platform_cpu halted" in err
