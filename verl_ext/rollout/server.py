"""The engine behind verl's rollout seams: a Ray actor that serves it, the replica that starts it, the adapter that
sends it the trainer's weights. Selected by `actor_rollout_ref.rollout.name=transformers`.

One replica a training process (tensor parallel size 1). Weights travel through Ray's object store.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import ray
import torch
from omegaconf import DictConfig
from verl.utils.fs import copy_to_local
from verl.workers.config import HFModelConfig, RolloutConfig
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from agentgym_rl.errors import ConfigurationError
from verl_ext.rollout.engine import Engine, Sampling


def _server_name(replica_rank: int) -> str:
    return f"transformers_server_{replica_rank}"


class TransformersServer:
    """What verl's clients and trainer call on a rollout server. Methods mean what they mean in vLLM's server."""

    def __init__(self, model_path: str, max_tokens_in_cache: int, max_model_len: int, seed: int):
        # Half of the cores: the environments and their loops run at the same time.
        torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
        self._engine = Engine.from_folder(model_path, max_tokens_in_cache, seed)
        self._max_model_len = max_model_len
        self._stop_ids = _stop_ids(model_path)
        self._global_steps: int | None = None

    async def generate(
        self,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: Any = None,
        video_data: Any = None,
        **_: Any,
    ) -> TokenOutput:
        if image_data or video_data:
            raise ConfigurationError("rollout.name=transformers serves text only; images and video need vllm or sglang")
        if sampling_params.get("top_p", 1.0) != 1.0 or sampling_params.get("top_k", -1) > 0:
            raise ConfigurationError(
                "rollout.name=transformers samples from the whole distribution: top_p=1 and top_k=-1; given: "
                f"{sampling_params.get('top_p')}, {sampling_params.get('top_k')}"
            )
        room = self._max_model_len - len(prompt_ids)
        if room < 1:
            raise ConfigurationError(
                f"a prompt of {len(prompt_ids)} tokens leaves no room for a reply: {self._max_model_len} in all are "
                "allowed (rollout.max_model_len, or prompt_length + response_length)"
            )
        sampling = Sampling(
            max_tokens=min(sampling_params.get("max_tokens") or room, room),
            temperature=sampling_params.get("temperature", 1.0),
            stop_ids=tuple(sampling_params.get("stop_token_ids") or self._stop_ids),
        )
        sampled = await self._engine.generate(list(prompt_ids), sampling)
        return TokenOutput(
            token_ids=sampled.ids,
            log_probs=sampled.logprobs,
            stop_reason="aborted" if sampled.aborted else "completed",
            extra_fields={"global_steps": self._global_steps},
        )

    async def update_weights(self, weights: dict[str, torch.Tensor], global_steps: int | None) -> None:
        self._engine.load_weights(weights.items())
        if global_steps is not None:
            self._global_steps = global_steps

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        self._engine.pause()

    async def resume_generation(self) -> None:
        self._engine.resume()

    async def clear_kv_cache(self) -> None:
        self._engine.drop_batch()

    # The engine holds the machine's own memory: nothing is gained by putting it to sleep between phases.
    async def wake_up(self, tags: list[str] | None = None) -> None: ...

    async def sleep(self) -> None: ...

    async def release_kv_cache(self) -> None: ...

    async def resume_kv_cache(self) -> None: ...

    async def start_profile(self, **_: Any) -> None: ...

    async def stop_profile(self) -> None: ...


class TransformersReplica(RolloutReplica):
    """Starts one server actor beside one training process."""

    async def launch_servers(self) -> None:
        if self.world_size != 1:
            raise ConfigurationError(
                "rollout.name=transformers runs one process a replica: set rollout.tensor_model_parallel_size=1; "
                f"given: {self.world_size} processes"
            )
        context = self.config.max_model_len or self.config.prompt_length + self.config.response_length
        server = (
            ray.remote(TransformersServer)
            .options(name=_server_name(self.replica_rank), max_concurrency=self.max_concurrency, num_cpus=1)
            .remote(
                model_path=copy_to_local(self.model_config.path),
                max_tokens_in_cache=self.config.max_num_seqs * context,
                max_model_len=context,
                seed=self.config.seed + self.replica_rank,
            )
        )
        self.servers = [server]
        self._server_handle = server
        self._server_address = _server_name(self.replica_rank)


class ServerAdapter(BaseRollout):
    """The trainer's side: hands new weights to this rank's server."""

    def __init__(
        self,
        config: RolloutConfig | DictConfig,
        model_config: HFModelConfig,
        device_mesh: Any,
        replica_rank: int = -1,
    ):
        super().__init__(config, model_config, device_mesh)
        self._replica_rank = torch.distributed.get_rank() if replica_rank < 0 else replica_rank

    async def update_weights(
        self,
        weights: Generator[tuple[str, torch.Tensor], None, None],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **_: Any,
    ) -> None:
        if wire_format != "named_tensors":
            raise ConfigurationError(f"rollout.name=transformers takes whole weights only; given: {wire_format!r}")
        whole = {name: tensor.detach().float().cpu().clone() for name, tensor in weights}
        server = ray.get_actor(_server_name(self._replica_rank))
        await server.update_weights.remote(whole, global_steps)

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...


def _stop_ids(model_path: str) -> tuple[int, ...]:
    """The end-of-sequence ids that the folder's generation configuration names."""
    from transformers import GenerationConfig

    ids = GenerationConfig.from_pretrained(model_path).eos_token_id
    if ids is None:
        raise ConfigurationError(f"{model_path}: generation_config.json names no eos_token_id, so no reply would end")
    return (ids,) if isinstance(ids, int) else tuple(ids)
