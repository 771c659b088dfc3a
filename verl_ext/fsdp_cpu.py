"""verl's FSDP engines on the CPU: the same classes, less two assumptions that only hold on an accelerator."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import verl.utils.model
from transformers import AutoModelForTokenClassification
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine, FSDPEngineWithLMHead, FSDPEngineWithValueHead

BACKENDS = ["fsdp", "fsdp2"]


class _OnCpu(FSDPEngine):
    """Builds forward-only models (the reference policy) without offloading them.

    verl/workers/engine/fsdp/transformer_impl.py offloads every forward-only model to pinned CPU memory. There is
    nothing to offload from here, and pinning needs an accelerator.
    """

    def _build_fsdp_module(self, module: Any) -> Any:
        given = self.engine_config
        self.engine_config = dataclasses.replace(given, forward_only=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = given


@EngineRegistry.register(model_type="language_model", backend=BACKENDS, device="cpu")
class CpuEngineWithLMHead(_OnCpu, FSDPEngineWithLMHead):
    """Actor and reference policy."""


@EngineRegistry.register(model_type="value_model", backend=BACKENDS, device="cpu")
class CpuEngineWithValueHead(_OnCpu, FSDPEngineWithValueHead):
    """Critic. Its value head is new: a causal checkpoint has none, so verl warms it up (`trainer.critic_warmup`)."""

    def _build_module(self) -> Any:
        with _valuehead_with_configured_attention():
            return super()._build_module()


@contextlib.contextmanager
def _valuehead_with_configured_attention() -> Iterator[None]:
    """verl/utils/model.py asks for flash attention whatever the configuration says, and reports its absence as a
    missing value head."""

    def load(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        return AutoModelForTokenClassification.from_pretrained(
            local_path, dtype=torch_dtype, config=model_config, trust_remote_code=trust_remote_code
        )

    original = verl.utils.model.load_valuehead_model
    verl.utils.model.load_valuehead_model = load
    try:
        yield
    finally:
        verl.utils.model.load_valuehead_model = original
