"""verl's data loader with a curriculum in place of its shuffling."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.utils.dataset.rl_dataset import collate_fn

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task
from verl_ext.curriculum import Curriculum, Row, TaskSampler


def curriculum_loader(dataset: Any, curriculum: Curriculum, data: DictConfig) -> tuple[StatefulDataLoader, TaskSampler]:
    """As `PPOTrainer._init_dataloader` builds it (verl/trainer/ppo/v1/trainer_base.py), but drawing by difficulty.

    Args:
        dataset: verl's, with the rows of `agentgym_rl.data.parquet`.
        curriculum: which tasks are preferred.
        data: the section `data` of the configuration.

    Raises:
        ConfigurationError: the data set has no tasks with an id each, or the curriculum names other environments.
    """
    if "task" not in dataset.dataframe.column_names:
        raise ConfigurationError(
            "a curriculum needs the column 'task' (see agentgym_rl.data.parquet); data.train_files have: "
            + ", ".join(sorted(dataset.dataframe.column_names))
        )
    tasks = [Task.from_json(text) for text in dataset.dataframe["task"]]
    rows = [Row(task.id, task.environment) for task in tasks]
    sampler = TaskSampler(rows, curriculum, seed=data.get("seed") or 0, apart=data.train_batch_size)
    loader = StatefulDataLoader(
        dataset=dataset,
        batch_size=data.get("gen_batch_size") or data.train_batch_size,
        num_workers=0,
        drop_last=True,
        collate_fn=collate_fn,
        sampler=sampler,
    )
    return loader, sampler
