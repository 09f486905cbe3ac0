"""Moving a learner's state out of GPU memory and back, with torch's own AdamW and without a compiler.

DeepSpeed moves the optimizer's state at ZeRO-3 only if the optimizer is its own, which is compiled on first use. So
what AdamW holds is moved here; what DeepSpeed lays out for itself (parameters, buffers of gradients) it moves.
"""

from typing import Any

import torch
from torch import Tensor

from torl.learner.optimizer_shards import OptimizerShards


class StateMover:
    """Moves the state of one DeepSpeed engine at ZeRO stage 2 or 3. Gradients are freed: between steps all are zero."""

    def __init__(self, engine: Any, shards: OptimizerShards) -> None:
        """`shards` are the engine's own."""
        self._engine = engine
        self._shards = shards
        self._gradient_elements = 0

    def offload_optimizer(self) -> None:
        """Move masters and moments to CPU memory; the parameters that compute stay."""
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
        # DeepSpeed would copy the gradients; of an empty tensor it forgets the views and copies nothing.
        gradients = optimizer.grad_partitions_flat_buffer
        self._gradient_elements = gradients.numel()
        gradients.data = gradients.new_empty(0)
        self._engine.offload_states(include=[State.lp_grads, State.contiguous_grad_buffer], pin_memory=False)

    def offload_parameters(self) -> None:
        """Move the parameters that compute to CPU memory."""
        from deepspeed.runtime.zero.offload_config import OffloadStateTypeEnum as State

        self._engine.offload_states(include=[State.lp_params])

    def onload(self) -> None:
        """Move everything back that has been moved."""
        device = self._engine.device
        if self._gradient_elements:
            gradients = self._engine.optimizer.grad_partitions_flat_buffer
            gradients.data = torch.zeros(self._gradient_elements, dtype=gradients.dtype, device=device)
            self._gradient_elements = 0
            with torch.no_grad():
                for master in self._shards.masters:
                    master.data = master.data.to(device, non_blocking=True)
                for state in self._shards.adamw.state.values():
                    for name, value in state.items():
                        # The plain AdamW counts its steps on the CPU, wherever its moments are.
                        if torch.is_tensor(value) and (name != "step" or self._shards.adamw.defaults.get("fused")):
                            state[name] = value.to(device, non_blocking=True)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        self._engine.reload_states()


def _to_host(tensor: Tensor) -> Tensor:
    """A copy in CPU memory, page-locked where that makes the copy faster; the tensor itself where it is there already
    for good (a count of steps)."""
    if tensor.dim() == 0 and tensor.device.type == "cpu":
        return tensor
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
    return host.copy_(tensor)
