"""What a rank holds of the optimizer's state: float32 masters and moments, in DeepSpeed's flat buffers.

DeepSpeed has another optimizer class for almost every ZeRO stage and precision, and each lays the parameters out in its
own way. Here all of them are flat tensors, and a list of which part of which parameter lies where.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MOMENTS = ("exp_avg", "exp_avg_sq")  # AdamW's, as large as the master

# What DeepSpeed's classes call them: stages 1 and 2, stage 1 in bf16, stage 3.
_MASTERS = ("single_partition_of_fp32_groups", "fp32_groups_flat_partition", "fp32_partitioned_groups_flat")


@dataclass(frozen=True, slots=True)
class Fragment:
    """Elements `start` to `stop` of a parameter, flattened, which lie from `offset` on in a flat tensor."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    flat: int  # index in `OptimizerShards.masters`
    offset: int
    written_from: int  # the part that this rank writes to a checkpoint: where ranks hold the same, each writes its own
    written_to: int


class OptimizerShards:
    """The optimizer's state of one DeepSpeed engine on one rank. Where parts lie does not change while it lives."""

    def __init__(self, engine: Any, rank: int, world_size: int) -> None:
        """Find out where everything lies; the engine must be resident."""
        self._optimizer = engine.optimizer
        self.adamw: torch.optim.Optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
        named = [(name, parameter) for name, parameter in engine.module.named_parameters() if parameter.requires_grad]
        if hasattr(engine.optimizer, "grad_position"):
            self.fragments = list(_of_stage_3(engine.optimizer, named, rank))
        elif any(getattr(parameter, "_hp_mapping", None) is not None for _, parameter in named):
            self.fragments = list(_of_stages_1_and_2(named))
        else:
            self.fragments = list(_of_stage_0(named, rank, world_size))

    @property
    def masters(self) -> list[Tensor]:
        """The flat tensors that AdamW updates, in float32; at stage 0 one for each parameter, in its shape."""
        for attribute in _MASTERS:
            if (found := getattr(self._optimizer, attribute, None)) is not None:
                return list(found)
        groups = getattr(self._optimizer, "fp32_groups", None) or [group["params"] for group in self.adamw.param_groups]
        return [master for group in groups for master in group]

    def tensors(self, fragment: Fragment) -> Mapping[str, Tensor]:
        """Views of a fragment's "master" and, when a step has been taken, its moments."""
        master = self.masters[fragment.flat]
        state = self.adamw.state.get(master, {})
        flats = {"master": master.detach(), **{name: state[name] for name in MOMENTS if name in state}}
        size = fragment.stop - fragment.start
        return {name: flat.view(-1).narrow(0, fragment.offset, size) for name, flat in flats.items()}

    @property
    def steps(self) -> int:
        """How many steps AdamW has taken."""
        return max((int(state["step"]) for state in self.adamw.state.values() if "step" in state), default=0)

    def set_steps(self, steps: int) -> None:
        """Make room for moments, zero as yet, as after `steps` steps; forget them if there was none."""
        self.adamw.state.clear()
        if steps == 0:
            return
        for master in self.masters:
            # As torch's AdamW does it: the fused one counts on the device, the plain one on the CPU.
            device = master.device if self.adamw.defaults.get("fused") else torch.device("cpu")
            self.adamw.state[master] = {
                "step": torch.tensor(float(steps), dtype=torch.float32, device=device),
                **{name: torch.zeros_like(master, memory_format=torch.preserve_format) for name in MOMENTS},
            }

    def update_parameters(self) -> None:
        """Bring the parameters that compute to what the masters say; every rank must call it."""
        optimizer = self._optimizer
        if optimizer is self.adamw:
            return  # they are the masters
        with torch.no_grad():
            if hasattr(optimizer, "fp16_partitioned_groups_flat"):
                optimizer.empty_partition_cache()  # whole parameters are copies of what the shards were
                for low, master in zip(optimizer.fp16_partitioned_groups_flat, self.masters, strict=True):
                    low.data.copy_(master.data)
            elif hasattr(optimizer, "update_lp_params"):
                optimizer.update_lp_params()
            else:
                for low, master in zip(
                    (parameter for group in optimizer.fp16_groups for parameter in group), self.masters, strict=True
                ):
                    low.data.copy_(master.data)


def _of_stage_3(optimizer: Any, named: list[tuple[str, Any]], rank: int) -> Iterator[Fragment]:
    for name, parameter in named:
        flat, offset, _ = optimizer.grad_position[optimizer.get_param_id(parameter)]
        share = parameter.partition_numel()
        start = min(rank * share, parameter.ds_numel)
        stop = min(start + share, parameter.ds_numel)  # the last shares are padded
        yield Fragment(name, tuple(parameter.ds_shape), start, stop, flat, offset, start, stop)


def _of_stages_1_and_2(named: list[tuple[str, Any]]) -> Iterator[Fragment]:
    for name, parameter in named:
        mapping = parameter._hp_mapping
        if mapping is None:
            continue  # it lies with other ranks
        start = mapping.lp_fragment_address.start
        stop = start + mapping.lp_fragment_address.numel
        flat, offset = mapping.param_group_index, mapping.hp_fragment_address.start
        yield Fragment(name, tuple(parameter.shape), start, stop, flat, offset, start, stop)


def _of_stage_0(named: list[tuple[str, Any]], rank: int, world_size: int) -> Iterator[Fragment]:
    for flat, (name, parameter) in enumerate(named):
        size = parameter.numel()
        part = (size * rank // world_size, size * (rank + 1) // world_size)
        yield Fragment(name, tuple(parameter.shape), 0, size, flat, 0, *part)
