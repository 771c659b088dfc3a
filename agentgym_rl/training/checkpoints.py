"""verl's checkpoints on disk: which one is the newest that is complete, and the policy in it.

verl writes `global_step_N/`, and last of all the number N into `latest_checkpointed_iteration.txt`: what that file
names is complete, whatever else lies there. main_ppo does not replace that file but rewrites it (verl/trainer/ppo/v1/
trainer_base.py), so that a kill may leave it empty, and verl would then not start again.
"""

from __future__ import annotations

import os
from pathlib import Path

from agentgym_rl.data.replaced import replaced
from agentgym_rl.errors import ConfigurationError

TRACKER = "latest_checkpointed_iteration.txt"


def newest_step(checkpoints: Path) -> int | None:
    """The step of the newest complete checkpoint; None: there is none."""
    try:
        return int((checkpoints / TRACKER).read_text())
    except (FileNotFoundError, ValueError):
        return None


def mend_tracker(checkpoints: Path, written_last: str) -> None:
    """Where a kill left the tracker without a number, write the one that was being written, if its checkpoint is there.

    Args:
        checkpoints: verl's `default_local_dir`.
        written_last: the file of a checkpoint that is written last, before the tracker.
    """
    tracker = checkpoints / TRACKER
    if not tracker.exists() or newest_step(checkpoints) is not None:
        return
    found = checkpoints.glob(f"global_step_*/{written_last}")
    steps = [int(path.relative_to(checkpoints).parts[0].rpartition("_")[2]) for path in found]
    if not steps:
        tracker.unlink()
        return
    with replaced(tracker) as beside:
        beside.write_text(str(max(steps)))


def link_policy(checkpoints: Path, inside: str, link: Path) -> None:
    """Make `link` the Hugging Face folder of the newest complete checkpoint.

    Args:
        checkpoints: verl's `default_local_dir`.
        inside: where that folder is in a checkpoint.
        link: a symbolic link beside `checkpoints`; it is replaced in one step.

    Raises:
        ConfigurationError: there is no checkpoint, or it holds no weights.
    """
    step = newest_step(checkpoints)
    if step is None:
        raise ConfigurationError(f"the training left no checkpoint in {checkpoints}; trainer.save_freq must be above 0")
    policy = checkpoints / f"global_step_{step}" / inside
    if not any(policy.glob("*.safetensors")) and not any(policy.glob("*.bin")):
        raise ConfigurationError(f"{policy} holds no weights; the checkpoint's save_contents must have hf_model")
    beside = link.with_name(f".{link.name}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(os.path.relpath(policy, link.parent))
    os.replace(beside, link)
