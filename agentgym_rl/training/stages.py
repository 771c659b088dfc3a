"""What a stage of a plan may be: each kind is a few fields and the ordinary command that they make.

A stage writes into its own folder only, under fixed names: `policy` (the Hugging Face folder of what was trained),
`trajectories.jsonl` and `result.json` (of what was played), `sft.parquet` (of what was selected).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from agentgym_rl.training.verl_arguments import config_of, override, trainer_of

CHECKPOINTS = "checkpoints"
POLICY = "policy"
TRAJECTORIES = "trajectories.jsonl"
RESULT = "result.json"
SFT_DATA = "sft.parquet"


class Work(Protocol):
    """One kind of stage."""

    def make_command(self, folder: Path) -> list[str]:
        """The command that does it and writes into `folder`."""
        ...

    def policy_in(self, folder: Path) -> Path | None:
        """The policy that it makes; None: none."""
        ...


@dataclass(frozen=True)
class Sft:
    """Imitate conversations with verl's SFT trainer, which goes on from its last checkpoint by itself."""

    config: str
    """Yaml of the trainer's configuration."""
    data: str
    """SFT parquet file."""
    steps: int
    """Updates."""
    model: str = "{policy}"
    """Hugging Face folder to start from."""
    overrides: tuple[str, ...] = ()
    """Further hydra overrides."""
    processes: int = 1
    """Training processes on this machine."""

    policy_inside, written_last = "huggingface", "data_0.pt"
    """Where verl's checkpoint has the policy, and the file that it writes last."""

    def make_command(self, folder: Path) -> list[str]:
        return [
            *("torchrun", "--standalone", f"--nproc_per_node={self.processes}", "-m", "verl.trainer.sft_trainer"),
            *config_of(self.config),
            override("data.train_files", self.data),
            override("model.path", self.model),
            "checkpoint.save_contents=[model,optimizer,extra,hf_model]",
            *trainer_of(self.steps, folder / CHECKPOINTS),
            *self.overrides,
        ]

    def policy_in(self, folder: Path) -> Path:
        return folder / POLICY


@dataclass(frozen=True)
class Grpo:
    """Reinforcement learning with verl's main_ppo, by any estimator that the configuration names.

    The reference policy of a KL term is the policy it starts from: verl loads it from the same path.
    """

    config: str
    """Yaml of the trainer's configuration."""
    train: str
    """Parquet file of training tasks."""
    validation: str
    """Parquet file of validation tasks."""
    steps: int
    """Training steps."""
    model: str = "{policy}"
    """Hugging Face folder to start from."""
    overrides: tuple[str, ...] = ()
    """Further hydra overrides."""

    policy_inside, written_last = "actor/huggingface", "data.pt"
    """Where verl's checkpoint has the policy, and the file that it writes last."""

    def make_command(self, folder: Path) -> list[str]:
        return [
            *("python", "-m", "verl.trainer.main_ppo"),
            *config_of(self.config),
            override("data.train_files", self.train),
            override("data.val_files", self.validation),
            override("actor_rollout_ref.model.path", self.model),
            "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]",
            *trainer_of(self.steps, folder / CHECKPOINTS),
            *self.overrides,
        ]

    def policy_in(self, folder: Path) -> Path:
        return folder / POLICY


@dataclass(frozen=True)
class Play:
    """Play tasks with a policy and keep everything, to sample from it or to judge it. Fields are `eval`'s options."""

    tasks: str
    policy: str = "checkpoint:{policy}"
    episodes: int | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    max_turns: int | None = None
    concurrency: int | None = None
    limit: int | None = None
    seed: int | None = None
    isolation: str | None = None

    def make_command(self, folder: Path) -> list[str]:
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        given = [[f"--{name.replace('_', '-')}", str(value)] for name, value in options.items() if value is not None]
        written = ["--out", str(folder / RESULT), "--save-trajectories", str(folder / TRAJECTORIES)]
        return ["openmanus-rl", "eval", *(word for option in given for word in option), *written]

    def policy_in(self, folder: Path) -> None:
        return None


@dataclass(frozen=True)
class Select:
    """Keep the best trajectories, to be imitated. Fields are `select`'s options."""

    trajectories: tuple[str, ...]
    top: int | None = None
    min_return: float | None = None
    only_success: bool = False
    distinct: bool = False

    def make_command(self, folder: Path) -> list[str]:
        words = ["openmanus-rl", "select"]
        for file in self.trajectories:
            words += ["--trajectories", file]
        if self.top is not None:
            words += ["--top", str(self.top)]
        if self.min_return is not None:
            words += ["--min-return", str(self.min_return)]
        words += ["--only-success"] * self.only_success + ["--distinct"] * self.distinct
        return [*words, "--out", str(folder / SFT_DATA)]

    def policy_in(self, folder: Path) -> None:
        return None


@dataclass(frozen=True)
class Command:
    """Any other command, e.g. one that prepares data."""

    command: tuple[str, ...]
    """The command and its arguments, no shell."""
    policy: str | None = None
    """Hugging Face folder that it makes, if it makes one."""

    def make_command(self, folder: Path) -> list[str]:
        return list(self.command)

    def policy_in(self, folder: Path) -> Path | None:
        return Path(self.policy) if self.policy is not None else None


KINDS: dict[str, type[Any]] = {
    "sft": Sft,
    "grpo": Grpo,
    "sample": Play,
    "evaluate": Play,
    "select": Select,
    "command": Command,
}
