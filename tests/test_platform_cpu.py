"""The CPU as verl's platform, and the FSDP engines' two exceptions for it."""

from __future__ import annotations

import pytest
import torch
import verl.utils.distributed
import verl.utils.model
from transformers import AutoConfig
from verl.plugin.platform.platform_manager import get_platform
from verl.workers.config import FSDPEngineConfig
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

from verl_ext import fsdp_cpu
from verl_ext.platform_cpu import PlatformCPU

RAY = "initialize_global_process_group_ray"
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is the platform here")


def test_it_is_in_use_exactly_where_there_is_no_accelerator():
    assert isinstance(get_platform(), PlatformCPU) == (not torch.cuda.is_available())


def test_memory_figures_are_those_of_process_and_machine():
    device = PlatformCPU().device_module
    free, total = device.mem_get_info()
    assert 10_000_000 < device.memory_allocated() <= device.max_memory_allocated() * 2
    assert device.memory_allocated() < total
    assert 0 < free <= total


def test_tensors_move_to_its_current_device():
    assert torch.ones(2).to(PlatformCPU().current_device()).device.type == "cpu"


@pytest.mark.parametrize("seed", ["manual_seed", "manual_seed_all"])
def test_seeds_seed_torch(seed):
    draws = []
    for made in (PlatformCPU(), PlatformCPU().device_module):
        getattr(made, seed)(7)
        draws.append(torch.rand(1).item())
    torch.manual_seed(7)
    assert draws == [torch.rand(1).item()] * 2


def test_what_a_checkpoint_loads_leaves_torchs_own_random_state_alone():
    state = torch.get_rng_state()
    PlatformCPU().device_module.set_rng_state(torch.zeros_like(state))
    assert torch.equal(torch.get_rng_state(), state)


def test_other_names_are_torch_cpus_own():
    assert PlatformCPU().device_module.current_stream() is torch.cpu.current_stream()
    with pytest.raises(AttributeError, match="no_such_name"):
        PlatformCPU().device_module.no_such_name  # noqa: B018


@on_cpu
@pytest.mark.parametrize(
    ("initialize", "query"), [("initialize_global_process_group", "?rank=0&world_size=1"), (RAY, "")]
)
def test_a_process_group_of_one_adds_up(monkeypatch, tmp_path, initialize, query):
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DIST_INIT_METHOD", f"file://{tmp_path}/store{query}")
    assert getattr(verl.utils.distributed, initialize)() == (None if initialize == RAY else (0, 0, 1))
    try:
        assert torch.distributed.get_backend() == "gloo"
        total = torch.ones(1)
        torch.distributed.all_reduce(total)
        assert total.item() == 1
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("fails", [False, True])
def test_a_reference_model_is_built_as_if_it_were_trained(monkeypatch, fails):
    seen = []

    def build(self, module):
        seen.append((self.engine_config.forward_only, self.engine_config.strategy, module))
        if fails:
            raise MemoryError
        return "built"

    monkeypatch.setattr(FSDPEngine, "_build_fsdp_module", build)
    given = FSDPEngineConfig(forward_only=True, strategy="fsdp2")
    made = object.__new__(fsdp_cpu.CpuEngineWithLMHead)
    made.engine_config = given
    if fails:
        with pytest.raises(MemoryError):
            made._build_fsdp_module("module")
    else:
        assert made._build_fsdp_module("module") == "built"
    assert seen == [(False, "fsdp2", "module")]
    assert made.engine_config is given


def test_a_critic_is_loaded_with_the_attention_it_was_configured_with(policy_folder):
    config = AutoConfig.from_pretrained(policy_folder, num_labels=1, attn_implementation="sdpa")
    original = verl.utils.model.load_valuehead_model
    with fsdp_cpu._valuehead_with_configured_attention():
        critic = verl.utils.model.load_valuehead_model(str(policy_folder), torch.float32, config, False)
    assert verl.utils.model.load_valuehead_model is original
    assert critic.config._attn_implementation == "sdpa"
    assert critic(torch.tensor([[5, 6, 7]])).logits.shape == (1, 3, 1)
