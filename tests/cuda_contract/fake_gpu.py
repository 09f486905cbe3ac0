"""A GPU that computes no numbers: torch's fake tensors, DeepSpeed's view of the device, and a process group.

Shapes, dtypes and devices are those of a run on CUDA. An operation on tensors of two devices raises, and so does any
collective on a CPU tensor: the process group of a run on GPUs has no backend for it. Use it in a separate process: it
replaces functions of torch and DeepSpeed for good.
"""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_leaves

from fake_backward import backward

GPU = torch.device("cuda", 0)
WORLD_SIZE = 2
CUDA_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "is_available": lambda: True,
    "current_device": lambda: 0,
    "get_device_capability": lambda *_: (9, 0),
    **{name: lambda *_: None for name in ("set_device", "synchronize", "_lazy_init", "init")},
}
"""Functions of `torch.cuda` as on an H100."""


class FakeGpuMode(FakeTensorMode):
    """Fake tensors. Numbers that programs read from them are 1, and flags are 0 or False."""

    avoid_device_init = True  # nothing asks for a driver

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)

    def dispatch(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Refuse collectives of CPU tensors."""
        if func.namespace == "c10d" and "barrier" not in str(func):
            for value in tree_leaves((args, kwargs)):
                if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                    raise RuntimeError(f"{func} of a CPU tensor")
        if func is torch.ops.aten._local_scalar_dense.default:
            flag = args[0].dtype in (torch.bool, torch.uint8)  # DeepSpeed's overflow is a byte
            return False if flag else 1.0 if args[0].is_floating_point() else 1
        if func is torch.ops.aten.bincount.default:
            with self:
                return torch.ones(args[2], dtype=torch.int64, device=args[0].device)
        return super().dispatch(func, types, args, kwargs or {})


def install_fake_gpu() -> tuple[FakeGpuMode, list[str]]:
    """Replace torch's functions, and join a process group without a CPU backend, as rank 0.

    Returns:
        The mode to compute in, and the list that each call of `torch.cuda.empty_cache` is added to.
    """
    from deepspeed.accelerator import real_accelerator
    from deepspeed.runtime.zero import partitioned_param_coordinator, stage3, stage_1_and_2

    from fake_accelerator import FakeAccelerator
    from torl.learner import deepspeed_engine
    from torl.learner.checkpoint import snapshot
    from torl.learner.model import packing_check

    gc.freeze()  # DeepSpeed collects garbage at each start, and the libraries' objects are many
    emptied: list[str] = []
    for name, function in {**CUDA_FUNCTIONS, "empty_cache": lambda: emptied.append("empty_cache")}.items():
        setattr(torch.cuda, name, function)
    real_accelerator.ds_accelerator = FakeAccelerator()
    partitioned_param_coordinator.assert_ints_same_as_other_ranks = lambda ints: None  # of numbers that are not there
    torch.nn.Module._apply = move_module  # type: ignore[method-assign]
    FakeTensor.data = property(_DATA.__get__, _set_data)  # type: ignore[method-assign,assignment]
    torch.Tensor.backward = backward  # type: ignore[method-assign,assignment]
    torch._C._current_graph_task_id = lambda: 1  # type: ignore[assignment]
    for module in (stage3, stage_1_and_2):  # it asks the engine of autograd
        module.count_used_parameters_in_backward = lambda parameters: sum(each.requires_grad for each in parameters)
    mode = FakeGpuMode()
    packing_check._TOLERANCES = dict.fromkeys(packing_check._TOLERANCES, (1.0, 1.0))  # every fake number is 1
    snapshot.rng_states = lambda: b""
    deepspeed_engine.open_weights = _without_numbers(deepspeed_engine.open_weights, mode)
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(WORLD_SIZE)}
    torch.distributed.init_process_group("cuda:fake", store=FakeStore(), rank=0, world_size=WORLD_SIZE)
    return mode, emptied


_DATA: Any = torch._C.TensorBase.data


def _set_data(tensor: FakeTensor, data: torch.Tensor) -> None:
    """Exchange the data of a tensor, and its device: torch leaves the device of a fake tensor unchanged."""
    _DATA.__set__(tensor, data)
    tensor.fake_device = data.device


def move_module(
    self: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True
) -> torch.nn.Module:
    """Move a module by new parameters: torch would exchange the tensors, to which weak references exist."""
    for child in self.children():
        child._apply(fn)
    for name, parameter in self._parameters.items():
        if parameter is not None and (moved := fn(parameter)) is not parameter:
            self._parameters[name] = torch.nn.Parameter(moved.detach(), parameter.requires_grad)
    for name, buffer in self._buffers.items():
        if buffer is not None:
            self._buffers[name] = fn(buffer)
    return self


def _without_numbers(open_weights: Callable[..., Any], mode: FakeGpuMode) -> Callable[..., Any]:
    """Make `open_weights` read fake tensors on the CPU."""

    @contextmanager
    def open_fake(*arguments: Any, **options: Any) -> Iterator[Callable[[str], torch.Tensor]]:
        with unset_fake_temporarily():
            opened = open_weights(*arguments, **options)
            read = opened.__enter__()

        def read_fake(name: str) -> torch.Tensor:
            with unset_fake_temporarily():
                tensor = read(name)
            return mode.from_tensor(tensor)

        yield read_fake

    return open_fake
