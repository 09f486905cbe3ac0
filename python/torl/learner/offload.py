"""Move a learner's state out of GPU memory and back, with torch's AdamW and without a compiler.

At ZeRO-3 DeepSpeed moves only the state of its own optimizer, which is compiled on first use, and only models without
frozen weights. The state of torch's AdamW and the parameters are therefore moved here; DeepSpeed moves gradients.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torl.learner.optimizer_shards import OptimizerShards


class StateMover:
    """Moves the state of a DeepSpeed engine at ZeRO stage 2 or 3. Gradients, which are 0 between steps, are freed."""

    def __init__(self, engine: Any, shards: OptimizerShards) -> None:
        """Create a mover.

        Args:
            engine: DeepSpeed engine.
            shards: Optimizer state of the engine.
        """
        self._engine = engine
        self._shards = shards
        self._gradient_elements = 0

    def offload_optimizer(self) -> None:
        """Move master weights and moments to CPU memory. The parameters for forward passes stay."""
        from deepspeed.runtime.zero.offload_config import OffloadStateTypeEnum as State

        optimizer = self._engine.optimizer
        if self._engine.zero_optimization_stage() == 2:
            self._engine.offload_states(include=[State.hp_params, State.optim_states])
            return
        with torch.no_grad():
            for master in self._shards.masters:
                master.data = _to_host(master.data)
            for state in self._shards.adamw.state.values():
                for name, value in state.items():
                    if torch.is_tensor(value):
                        state[name] = _to_host(value)
        # DeepSpeed would copy the gradients. For an empty tensor, it drops the views and copies nothing.
        gradients = optimizer.grad_partitions_flat_buffer
        self._gradient_elements = gradients.numel()
        gradients.data = gradients.new_empty(0)
        self._engine.offload_states(include=[State.lp_grads, State.contiguous_grad_buffer], pin_memory=False)

    def offload_parameters(self) -> None:
        """Move the parameters for forward passes to CPU memory. At stage 2, frozen parameters stay."""
        from deepspeed.runtime.zero.offload_config import OffloadStateTypeEnum as State

        if self._engine.zero_optimization_stage() == 2:
            self._engine.offload_states(include=[State.lp_params])
            return
        self._engine.optimizer.empty_partition_cache()  # gathered parameters
        self._move_shards(_to_host)

    def onload(self) -> None:
        """Move all offloaded tensors back."""
        device = self._engine.device
        if self._engine.zero_optimization_stage() == 3:
            self._move_shards(lambda tensor: tensor.to(device, non_blocking=True))
        if self._gradient_elements:
            gradients = self._engine.optimizer.grad_partitions_flat_buffer
            gradients.data = torch.zeros(self._gradient_elements, dtype=gradients.dtype, device=device)
            self._gradient_elements = 0
            with torch.no_grad():
                for master in self._shards.masters:
                    master.data = master.data.to(device, non_blocking=True)
                for state in self._shards.adamw.state.values():
                    for name, value in state.items():
                        # An AdamW that is not fused counts its steps on the CPU, even if its moments are on a GPU.
                        if torch.is_tensor(value) and (name != "step" or self._shards.adamw.defaults.get("fused")):
                            state[name] = value.to(device, non_blocking=True)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self._engine.reload_states()

    def _move_shards(self, move: Callable[[Tensor], Tensor]) -> None:
        """Move this rank's shards of all parameters (ZeRO-3). The shards of trained parameters share a flat buffer."""
        optimizer = self._engine.optimizer
        flat = optimizer.lp_param_buffer
        flat.data = move(flat.data)
        offset = 0
        for parameter in (parameter for group in optimizer.fp16_groups for parameter in group):
            size = parameter.ds_tensor.numel()
            parameter.ds_tensor.data = flat.data.narrow(0, offset, size)
            offset += size
        optimizer.fp16_partitioned_groups_flat.clear()
        optimizer._set_fp16_partitioned_groups_flat()  # views of the flat buffer
        for parameter in self._engine.module.parameters():
            if not parameter.requires_grad:
                parameter.ds_tensor.data = move(parameter.ds_tensor.data)


class FrozenModelMover:
    """Moves a model that is never trained, and therefore copies it to CPU memory only once."""

    def __init__(self, model: nn.Module) -> None:
        """Create a mover of a model on its device."""
        self._tensors = [*model.parameters(), *model.buffers()]
        self._copies: list[Tensor] = []

    def offload(self) -> None:
        """Move the model to CPU memory."""
        self._copies = self._copies or [_to_host(tensor.data) for tensor in self._tensors]
        for tensor, copy in zip(self._tensors, self._copies, strict=True):
            tensor.data = copy

    def onload(self, device: torch.device) -> None:
        """Move the model to a device."""
        for tensor, copy in zip(self._tensors, self._copies, strict=True):
            tensor.data = copy.to(device, non_blocking=True)
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def _to_host(tensor: Tensor) -> Tensor:
    """Return a copy in CPU memory, page-locked if it comes from a GPU. A step count on the CPU is returned as it is."""
    if tensor.dim() == 0 and tensor.device.type == "cpu":
        return tensor
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
    return host.copy_(tensor)
