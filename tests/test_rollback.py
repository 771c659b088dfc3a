"""A run goes back to its last checkpoint by verl's own loading, and on with other tasks, a curriculum's among them."""

from __future__ import annotations

import datasets
import pytest
import torch
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.task import Task
from verl_ext.curriculum import Curriculum, Played
from verl_ext.curriculum_loader import curriculum_loader
from verl_ext.rollback import roll_back
from verl_ext.watch import TrainingCollapsed


class Workers:
    """Says which checkpoints it was told to load."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def load_checkpoint(self, local_path: str, del_local_after_load: bool) -> None:
        self.loaded.append(local_path)


class Trainer:
    """verl's loading of a checkpoint, and what it touches."""

    _load_checkpoint = PPOTrainer._load_checkpoint
    trainer_mode = "sync"
    use_critic = False

    def __init__(self, folder, loader: StatefulDataLoader, resume_mode: str = "disable"):
        self.config = OmegaConf.create(
            {
                "trainer": {
                    "resume_mode": resume_mode,
                    "default_local_dir": str(folder),
                    "del_local_ckpt_after_load": False,
                    "save_freq": 20,
                }
            }
        )
        OmegaConf.set_struct(self.config, True)
        self.actor_rollout_wg = Workers()
        self.train_dataloader = loader
        self.train_dataloader_it = None
        self.global_steps = 0

    def next_batch(self) -> list:
        if self.train_dataloader_it is None:
            self.train_dataloader_it = iter(self.train_dataloader)
        return next(self.train_dataloader_it)


def saved(folder, step: int, loader: StatefulDataLoader) -> None:
    """What of a checkpoint's files the trainer itself reads."""
    (folder / f"global_step_{step}").mkdir()
    torch.save(loader.state_dict(), folder / f"global_step_{step}" / "data.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text(str(step))


def plain_loader() -> StatefulDataLoader:
    return StatefulDataLoader(list(range(10)), batch_size=1, collate_fn=list)


@pytest.mark.parametrize("resume_mode", ["disable", "auto"])
def test_it_goes_back_to_the_last_checkpoint_and_on_with_new_tasks(tmp_path, resume_mode):
    trainer = Trainer(tmp_path, plain_loader(), resume_mode)
    assert [trainer.next_batch() for _ in range(2)] == [[0], [1]]
    saved(tmp_path, 40, trainer.train_dataloader)
    assert trainer.next_batch() == [2]
    trainer.global_steps = 43
    assert roll_back(trainer) == tmp_path / "global_step_40"
    assert trainer.actor_rollout_wg.loaded == [str(tmp_path / "global_step_40" / "actor")]
    assert trainer.global_steps == 40
    assert trainer.config.trainer.resume_mode == resume_mode
    assert trainer.next_batch() == [3]
    again = plain_loader()  # what a checkpoint saved now would resume with
    again.load_state_dict(trainer.train_dataloader.state_dict())
    assert next(iter(again)) == [4]


def test_without_a_checkpoint_the_run_stops(tmp_path):
    trainer = Trainer(tmp_path, plain_loader())
    trainer.next_batch()
    trainer.global_steps = 3
    with pytest.raises(TrainingCollapsed, match=f"no checkpoint in {tmp_path} to go back to; trainer.save_freq is 20"):
        roll_back(trainer)


class Dataset:
    """verl's, as far as a loader sees it."""

    def __init__(self, **columns: list):
        self.dataframe = datasets.Dataset.from_dict(columns)

    def __len__(self) -> int:
        return len(self.dataframe)

    def __getitem__(self, item: int) -> dict:
        return {"id": Task.from_json(self.dataframe[item]["task"]).id}


def tasks(count: int) -> Dataset:
    return Dataset(task=[Task(f"t{number}", "maze").to_json() for number in range(count)])


def test_a_curriculums_loader_gives_verls_batches_of_tasks_that_lie_apart():
    data = OmegaConf.create({"train_batch_size": 3, "seed": 7})
    loader, _ = curriculum_loader(tasks(7), Curriculum(), data)
    batches = [list(batch["id"]) for batch in loader]
    assert len(batches) == 2  # of 3 each; the seventh is left over
    assert all(len(set(batch)) == 3 for batch in batches)
    data.gen_batch_size = 1
    assert [len(batch["id"]) for batch in curriculum_loader(tasks(7), Curriculum(), data)[0]] == [1] * 7


def test_a_curriculum_keeps_what_it_learnt_over_a_rollback_and_a_resume(tmp_path):
    data = OmegaConf.create({"train_batch_size": 2, "seed": None})
    loader, sampler = curriculum_loader(tasks(6), Curriculum(), data)
    trainer = Trainer(tmp_path, loader)
    trainer.next_batch()
    saved(tmp_path, 1, loader)
    sampler.update({"t3": Played(4, 4)})
    roll_back(trainer)
    assert sampler.weights().tolist() == [1, 1, 1, 0.1, 1, 1]
    resumed_loader, resumed = curriculum_loader(tasks(6), Curriculum(), data)
    resumed_loader.load_state_dict(loader.state_dict())
    expected = [list(trainer.next_batch()["id"]) for _ in range(2)]
    assert [list(batch["id"]) for batch in resumed_loader] == expected
    assert torch.equal(resumed.weights(), sampler.weights())


def test_a_data_set_without_tasks_is_refused():
    with pytest.raises(ConfigurationError, match="needs the column 'task' .*; data.train_files have: prompt"):
        curriculum_loader(Dataset(prompt=["a"]), Curriculum(), OmegaConf.create({"train_batch_size": 1}))
