"""Going back to the last checkpoint in the middle of a run of verl's synchronous trainer.

Weights, optimiser and step are the checkpoint's again; the tasks go on where they are, since the same ones would lead
to the same place (Chowdhery et al. 2022, PaLM, arXiv 2204.02311, section 5.1, skips the batches before a loss spike).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import open_dict

from verl_ext.watch import TrainingCollapsed


def roll_back(trainer: Any) -> Path:
    """Load the last checkpoint into a trainer between its update and its weight sync; returns the folder.

    verl's `fit` goes on by itself: it syncs the weights and counts on from the checkpoint's step. The caller must keep
    it from saving that step again, which verl's retention would count twice (`register_checkpoint` in
    verl/utils/checkpoint/checkpoint_manager.py) and delete.

    Raises:
        TrainingCollapsed: there is no checkpoint.
    """
    settings = trainer.config.trainer
    position = trainer.train_dataloader.state_dict()
    resume_mode = settings.resume_mode
    with open_dict(trainer.config):
        settings.resume_mode = "auto"
        trainer._load_checkpoint()
        settings.resume_mode = resume_mode
    if trainer.global_steps == 0:
        raise TrainingCollapsed(
            f"there is no checkpoint in {settings.default_local_dir} to go back to; trainer.save_freq is "
            f"{settings.save_freq}"
        )
    trainer.train_dataloader.load_state_dict(position)
    trainer.train_dataloader_it = None  # verl would go on drawing from the old one, and save the new one's position
    return Path(settings.default_local_dir) / f"global_step_{trainer.global_steps}"
