"""What `import verl` loads in every process: all registrations of this package, in order, and nothing else.

The entry point group `verl.plugins` names this module. verl swallows what a plugin raises, so the failure is logged
here before it goes on; in the training process an unknown name would be the only other sign of it.
"""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


def _register_all() -> list[str]:
    """Register everything; returns what, for the log."""
    import verl  # noqa: F401  verl comes first: the rest imports parts of it

    from verl_ext import platform_cpu

    on_cpu = platform_cpu.register()
    # From here on modules that ask for the platform while they are imported.
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    from verl_ext.agent_loop import environment_loop, tool_loop  # noqa: F401

    # verl/workers/rollout/base.py has no function for the second half of a rollout engine's registration.
    _ROLLOUT_REGISTRY[("transformers", "async")] = "verl_ext.rollout.server.ServerAdapter"
    RolloutReplicaRegistry.register("transformers", _replica)
    platform = "platform cpu" + (" (in use)" if on_cpu else "")
    done = [platform, "agent loops environment/environment_tools", "rollout transformers"]
    if on_cpu:
        from verl_ext import fsdp_cpu

        done.append(f"engines {'/'.join(fsdp_cpu.BACKENDS)} on cpu")
    from verl_ext import trainer
    from verl_ext.advantages import registry

    registry.register()
    return [*done, f"trainers {'/'.join(trainer.NAMES)}", f"estimators {'/'.join(registry.ESTIMATORS)}"]


def _replica() -> type:
    from verl_ext.rollout.server import TransformersReplica

    return TransformersReplica


try:
    logger.info("openmanus-rl registered with verl: %s", ", ".join(_register_all()))
except Exception:
    logger.exception("openmanus-rl could not register with verl; its names will be unknown")
    raise
