"""DeepSpeed's view of a GPU that computes no numbers."""

from functools import partial
from typing import Any

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


def _tensors_on_gpu(dtype: torch.dtype) -> Any:
    return property(lambda self: partial(torch.tensor, dtype=dtype, device=GPU))


for _name, _dtype in {"Byte": torch.uint8, "Int": torch.int32, "Long": torch.int64, "Float": torch.float32}.items():
    setattr(FakeAccelerator, f"{_name}Tensor", _tensors_on_gpu(_dtype))
