"""verl on a machine without an accelerator: the platform and its gloo process groups.

verl picks the first registered platform that reports itself available; the built-in ones (nvidia, huawei, amd) come
first, so this one is chosen exactly where none of them is. No environment variable is needed.
"""

from __future__ import annotations

import functools
import os
import types
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psutil
import torch
import verl.utils.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry, get_platform


def _resident_bytes(*_: Any) -> int:
    return psutil.Process().memory_info().rss


def _free_and_total_bytes(*_: Any) -> tuple[int, int]:
    memory = psutil.virtual_memory()
    return memory.available, memory.total


def _nothing(*_: Any, **__: Any) -> None:
    return None


class _CpuModule(types.ModuleType):
    """`torch.cpu` with the parts of `torch.cuda` that verl asks its device module for.

    Memory figures are those of the process (resident set) and of the machine. The random state is left to
    `torch.get_rng_state`, which verl saves beside it.
    """

    memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = staticmethod(_resident_bytes)
    mem_get_info = staticmethod(_free_and_total_bytes)
    empty_cache = reset_peak_memory_stats = ipc_collect = set_rng_state = staticmethod(_nothing)
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)

    @staticmethod
    def get_device_name(*_: Any) -> str:
        return "CPU"

    @staticmethod
    def get_rng_state(*_: Any) -> torch.Tensor:
        return torch.get_rng_state()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)


class PlatformCPU(PlatformBase):
    """One logical device: the machine's cores. Ray is told of one logical "GPU" by the recipe (`ray_init.num_gpus`)."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _CpuModule("torch.cpu_with_memory_figures")

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return torch.device("cpu")  # verl hands it to `.to()`

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        return None

    def synchronize(self, device_index: int | None = None) -> None:
        return None

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        return None

    def empty_cache(self) -> None:
        return None

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Any:
        yield

    def profiler_start(self) -> None:
        return None

    def profiler_stop(self) -> None:
        return None

    def ray_resource_name(self) -> str:
        return "GPU"  # verl/single_controller/ray/base.py counts only GPU and NPU when it checks a resource pool

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


def _init_process_group(timeout_second: int = 36000) -> tuple[int, int, int]:
    """`initialize_global_process_group` with the plain gloo backend; returns (local rank, rank, world size)."""
    torch.distributed.init_process_group(
        backend="gloo",
        timeout=timedelta(seconds=timeout_second),
        init_method=os.environ.get("DIST_INIT_METHOD"),
    )
    return tuple(int(os.environ[name]) for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"))  # type: ignore[return-value]


def register() -> bool:
    """Make verl know the CPU, and use it where no accelerator is found; returns whether it is in use.

    verl/utils/distributed.py builds the backend string "cpu:gloo,<device>:<backend>", which torch refuses when the
    device is the CPU itself ("duplicate device type"); its two functions are replaced before anyone imports them.
    """
    PlatformRegistry.register("cpu")(PlatformCPU)
    if get_platform().device_name != "cpu":
        return False
    verl.utils.distributed.initialize_global_process_group = _init_process_group
    verl.utils.distributed.initialize_global_process_group_ray = functools.partial(
        verl.utils.distributed.initialize_global_process_group_ray, backend="gloo"
    )
    return True
