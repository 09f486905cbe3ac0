"""DeepSpeed's view of a GPU that computes no numbers."""

import torch
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
from fake_gpu import GPU


class FakeAccelerator(CPU_Accelerator):
    """A CUDA device without streams."""

    def __init__(self) -> None:
        super().__init__()
        self._name = "cuda"
        self._communication_backend_name = "fake"

    def device_name(self, device_index: int | None = None) -> str:
        return "cuda" if device_index is None else f"cuda:{device_index}"

    def device(self, device_index: int | None = None) -> torch.device:
        return GPU

    def current_device(self) -> int:
        return 0

    def current_device_name(self) -> str:
        return str(GPU)

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return tensor.device == GPU

    def available_memory(self, device_index: int | None = None) -> int:
        return 80 << 30
