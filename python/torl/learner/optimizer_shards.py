"""A rank's part of the optimizer state: float32 master weights and moments in DeepSpeed's flat buffers.

DeepSpeed has different optimizer classes for ZeRO stages and precisions, each with its own layout of the parameters.
This module presents all of them as flat tensors and a list of the parameter fragments in these tensors.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MOMENTS = ("exp_avg", "exp_avg_sq")
"""Names of AdamW's moments, each as large as the master weights."""

_SUM_ELEMENTS = 1 << 20  # elements in one partial sum, which bounds its memory

# Attributes of DeepSpeed's classes for stages 1 and 2, stage 1 in bf16, stage 3.
_MASTERS = ("single_partition_of_fp32_groups", "fp32_groups_flat_partition", "fp32_partitioned_groups_flat")


@dataclass(frozen=True, slots=True)
class Fragment:
    """Consecutive elements of a flattened parameter in a flat tensor."""

    name: str
    """Name of the parameter."""
    shape: tuple[int, ...]
    """Shape of the parameter."""
    start: int
    """First element of the parameter in the fragment."""
    stop: int
    """Element of the parameter after the fragment."""
    flat: int
    """Index of the flat tensor in `OptimizerShards.masters`."""
    offset: int
    """Index of the first element in the flat tensor."""
    written_from: int
    """First element that this rank writes to a checkpoint. Ranks with the same fragment write different parts."""
    written_to: int
    """Element after those that this rank writes to a checkpoint."""


class OptimizerShards:
    """A rank's part of the optimizer state of a DeepSpeed engine. The layout is constant."""

    def __init__(self, engine: Any, rank: int, world_size: int) -> None:
        """Read the layout of an engine whose state is not offloaded."""
        self._optimizer = engine.optimizer
        self.adamw: torch.optim.Optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
        named = [(name, parameter) for name, parameter in engine.module.named_parameters() if parameter.requires_grad]
        if engine.zero_optimization_stage() == 3:
            self.fragments = list(_fragments_of_stage_3(engine.optimizer, named, rank))
        elif any(getattr(parameter, "_hp_mapping", None) is not None for _, parameter in named):
            self.fragments = list(_fragments_of_stages_1_and_2(named))
        else:
            self.fragments = list(_fragments_of_stage_0(named, rank, world_size))

    @property
    def masters(self) -> list[Tensor]:
        """The flat float32 tensors that AdamW updates. At stage 0, the parameters in their shapes."""
        for attribute in _MASTERS:
            if (masters := getattr(self._optimizer, attribute, None)) is not None:
                return list(masters)
        groups = getattr(self._optimizer, "fp32_groups", None) or [group["params"] for group in self.adamw.param_groups]
        return [master for group in groups for master in group]

    def tensors(self, fragment: Fragment) -> Mapping[str, Tensor]:
        """Return views of a fragment's "master" weights and, after the first step, its `MOMENTS`."""
        master = self.masters[fragment.flat]
        state = self.adamw.state.get(master, {})
        flats = {"master": master.detach(), **{name: state[name] for name in MOMENTS if name in state}}
        size = fragment.stop - fragment.start
        return {name: flat.view(-1).narrow(0, fragment.offset, size) for name, flat in flats.items()}

    def weight_sums(self) -> dict[str, int]:
        """Return position-weighted sums of the bits of the master weights, modulo 2^64, by parameter.

        Only the elements that this rank writes to a checkpoint count, so that the sums of all ranks add up to those of
        one rank with all weights. Integers do not round: the sums are equal on a CPU and a GPU.
        """
        sums: dict[str, int] = {}
        for fragment in self.fragments:
            master = self.tensors(fragment)["master"].view(torch.int32)
            total = torch.zeros((), dtype=torch.int64, device=master.device)
            for start in range(fragment.written_from, fragment.written_to, _SUM_ELEMENTS):
                stop = min(start + _SUM_ELEMENTS, fragment.written_to)
                bits = master[start - fragment.start : stop - fragment.start].to(torch.int64)
                total += (bits * (torch.arange(start, stop, device=master.device) * 2 + 1)).sum()
            sums[fragment.name] = sums.get(fragment.name, 0) + int(total)
        return sums

    @property
    def steps(self) -> int:
        """Number of steps that AdamW has taken."""
        return max((int(state["step"]) for state in self.adamw.state.values() if "step" in state), default=0)

    def set_steps(self, steps: int) -> None:
        """Set the number of steps and allocate moments of 0, to be filled. Without a step, delete the moments."""
        self.adamw.state.clear()
        if steps == 0:
            return
        for master in self.masters:
            # As in torch: a fused AdamW counts steps on the device, another one on the CPU.
            device = master.device if self.adamw.defaults.get("fused") else torch.device("cpu")
            self.adamw.state[master] = {
                "step": torch.tensor(float(steps), dtype=torch.float32, device=device),
                **{name: torch.zeros_like(master, memory_format=torch.preserve_format) for name in MOMENTS},
            }

    def update_parameters(self) -> None:
        """Copy the master weights to the parameters for forward passes. Every rank must call this."""
        optimizer = self._optimizer
        if optimizer is self.adamw:
            return  # the parameters are the master weights
        with torch.no_grad():
            if hasattr(optimizer, "fp16_partitioned_groups_flat"):
                optimizer.empty_partition_cache()  # gathered parameters are copies of the previous shards
                for low, master in zip(optimizer.fp16_partitioned_groups_flat, self.masters, strict=True):
                    low.data.copy_(master.data)
            elif hasattr(optimizer, "update_lp_params"):
                optimizer.update_lp_params()
            else:
                for low, master in zip(
                    (parameter for group in optimizer.fp16_groups for parameter in group), self.masters, strict=True
                ):
                    low.data.copy_(master.data)


def _fragments_of_stage_3(optimizer: Any, named: list[tuple[str, Any]], rank: int) -> Iterator[Fragment]:
    for name, parameter in named:
        flat, offset, _ = optimizer.grad_position[optimizer.get_param_id(parameter)]
        size = parameter.partition_numel()
        start = min(rank * size, parameter.ds_numel)
        stop = min(start + size, parameter.ds_numel)  # the last partitions are padded
        yield Fragment(name, tuple(parameter.ds_shape), start, stop, flat, offset, start, stop)


def _fragments_of_stages_1_and_2(named: list[tuple[str, Any]]) -> Iterator[Fragment]:
    for name, parameter in named:
        mapping = parameter._hp_mapping
        if mapping is None:
            continue  # it belongs to other ranks
        start = mapping.lp_fragment_address.start
        stop = start + mapping.lp_fragment_address.numel
        flat, offset = mapping.param_group_index, mapping.hp_fragment_address.start
        yield Fragment(name, tuple(parameter.shape), start, stop, flat, offset, start, stop)


def _fragments_of_stage_0(named: list[tuple[str, Any]], rank: int, world_size: int) -> Iterator[Fragment]:
    for flat, (name, parameter) in enumerate(named):
        size = parameter.numel()
        part = (size * rank // world_size, size * (rank + 1) // world_size)
        yield Fragment(name, tuple(parameter.shape), 0, size, flat, 0, *part)
