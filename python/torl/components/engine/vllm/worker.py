"""Weight updates in vLLM's worker. Runs in the engine's processes only."""

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torl.base.runtime.processes.resources import trim_heap
from torl.components.engine.vllm.weights import load_embeddings_in_place, pack_heads
from torl.components.weights.channel import WeightChannel
from torl.components.weights.rendezvous import Endpoint, Rendezvous

if TYPE_CHECKING:
    import torch


class WeightReceiver:
    """Mixin for vLLM's worker class (`worker_extension_cls`), called by `collective_rpc`."""

    if TYPE_CHECKING:
        rank: int
        device: torch.device
        vllm_config: Any
        model_runner: Any

    def torl_describe(self) -> dict[str, Any]:
        """Describe this worker for `VllmEngine.describe_workers`."""
        import torch

        return {
            "pid": os.getpid(),
            "threads": torch.get_num_threads(),
            "compiles": not torch._dynamo.config.disable,
        }

    def torl_unlink_shared_memory(self) -> None:
        """Unlink the shared memory that connects workers on a CPU. All workers have opened it by now.

        The memory is then freed when its processes exit, even if killed. vLLM unlinks it in a destructor, which does
        not run in a killed process: each engine would leave some megabytes in /dev/shm.
        """
        identity = os.environ.get("VLLM_DIST_IDENT")  # the prefix of their names, set by vLLM's CPU worker
        if identity:
            for path in Path("/dev/shm").glob(f"{glob.escape(identity)}-*-cpushm_*"):
                path.unlink(missing_ok=True)

    def torl_free_loading_memory(self) -> None:
        """Free the memory that only loading the model needed."""
        pack_heads(self.model_runner.get_model())
        trim_heap()  # layers of less than 32 MB were in it before they were packed

    def torl_receive_weights(self, rendezvous: dict[str, Any], first: int) -> None:
        """Load the tensors of a sender into the live model, by their names in the checkpoint.

        vLLM's layerwise reload works on all platforms: it reverts and repeats the platform's processing of loaded
        weights (prepacking on a CPU, quantization) in place, so that compiled graphs stay valid.

        Args:
            rendezvous: Fields of the sender's `Rendezvous`.
            first: Number of this engine's first worker among the receivers.

        Raises:
            WeightTransferError: The transfer failed; the model may hold weights of both versions.
            ValueError: The sender omitted some of the model's parameters.
        """
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload.layerwise import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        channel = self._channel_to(Rendezvous(**rendezvous), first + self.rank)
        with set_current_vllm_config(self.vllm_config):
            model = self.model_runner.get_model()
            _reset_expert_kernels(model)
            initialize_layerwise_reload(model)
            load_embeddings_in_place(model)
            # Now those of the checkpoint: the processing of quantized weights adds others, such as scales.
            expected = {name for name, _ in model.named_parameters()}
            loaded = model.load_weights(channel.receive())
            finalize_layerwise_reload(model, self.vllm_config.model_config)
            pack_heads(model)
        if loaded is not None and (missing := expected - loaded):
            raise ValueError(f"{len(missing)} parameters were not sent, the first is {min(missing)}")

    def _channel_to(self, rendezvous: Rendezvous, number: int) -> WeightChannel:
        """Reuse the channel of the last transfer if possible, else open a new one."""
        channel: WeightChannel | None = getattr(self, "_torl_channel", None)
        if channel is None or not channel.is_open or channel.rendezvous != rendezvous:
            if channel is not None:
                channel.close()
            channel = WeightChannel(rendezvous, Endpoint("receiver", number), device=self.device)
            self._torl_channel = channel
        return channel


def _reset_expert_kernels(model: "torch.nn.Module") -> None:
    """Make the reload prepare the weights of experts again.

    vLLM prepares them together with their kernel, which it keeps. On a CPU, where experts are packed copies, the reload
    would therefore store plain weights and read them as packed ones.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        for module in model.modules():
            method: Any = getattr(module, "quant_method", None)
            if hasattr(method, "moe_kernel"):
                method.moe_kernel = None
