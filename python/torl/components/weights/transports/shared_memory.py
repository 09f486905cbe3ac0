"""Transports within a machine: through memory that processes share, and between processes on one GPU by CUDA IPC.

Segments of shared memory have no name: a receiver opens them through the sender's open files. They end with the
processes that use them, however these exit; no file remains in /dev/shm, and its size, which is small in containers,
does not matter. The transport by CUDA IPC has not run yet: it requires a GPU.
"""

import base64
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torl.base.errors import WeightTransferError
from torl.components.weights.control import Control
from torl.components.weights.transports.transport import MappedMemory


class SharedMemory(MappedMemory):
    """Buffers in anonymous files (memfd) that exist until the channel is closed. Payloads arrive in CPU memory."""

    def __init__(self, control: Control, device: torch.device | None) -> None:
        super().__init__(control, device)
        self._buffers: dict[int, torch.Tensor] = {}
        self._files: dict[int, int] = {}

    def buffer(self, number: int, size: int) -> torch.Tensor:
        if number not in self._buffers or self._buffers[number].numel() != size:
            self._close_file(number)
            file = self._files[number] = os.memfd_create("torl-weights", os.MFD_CLOEXEC)
            os.ftruncate(file, size)  # its pages are allocated when they are written
            self._buffers[number] = torch.frombuffer(mmap.mmap(file, size), dtype=torch.uint8)
        return self._buffers[number]

    def map(self, place: dict[str, Any]) -> torch.Tensor:
        path = f"/proc/{place['process']}/fd/{place['file']}"
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise WeightTransferError(
                f"the sender's shared memory cannot be opened ({path}: {error.strerror}): both sides must be processes "
                "of one user on one machine, or learner.weight_transfer be 'gloo'"
            ) from error
        try:
            status = os.fstat(file)
            # A read past the end of a file that is shorter than offered would kill this process.
            if (status.st_ino, status.st_size) != (place["inode"], place["size"]):
                raise WeightTransferError(f"{path} is not the shared memory that the sender has offered")
            return torch.frombuffer(mmap.mmap(file, status.st_size), dtype=torch.uint8)
        finally:
            os.close(file)

    def close(self) -> None:
        super().close()
        for number in list(self._files):
            self._close_file(number)  # the memory is freed when the last mapping ends

    def _offer(self, number: int) -> dict[str, Any]:
        # The inode distinguishes the file from an earlier one with the same descriptor.
        status = os.fstat(self._files[number])
        return {"process": os.getpid(), "file": self._files[number], "inode": status.st_ino, "size": status.st_size}

    def _close_file(self, number: int) -> None:
        self._buffers.pop(number, None)
        if number in self._files:
            os.close(self._files.pop(number))


# The values that `UntypedStorage._share_cuda_` returns and `_new_shared_cuda` takes, in order.
_HANDLE = (
    *("device", "handle", "storage_bytes", "storage_offset"),
    *("counter_handle", "counter_offset", "event_handle", "event_sync_required"),
)


class CudaIpc(MappedMemory):
    """Buffers on the GPU that a rank and its engine worker share. They exist during one transfer."""

    def __init__(self, control: Control, device: torch.device | None) -> None:
        super().__init__(control, device)
        self._device = device or torch.device("cuda", torch.cuda.current_device())
        self._buffers: dict[int, torch.Tensor] = {}
        self._places: dict[int, dict[str, Any]] = {}

    def buffer(self, number: int, size: int) -> torch.Tensor:
        if number not in self._buffers:
            with _no_expandable_segments():
                self._buffers[number] = torch.empty(size, dtype=torch.uint8, device=self._device)
        return self._buffers[number]

    def map(self, place: dict[str, Any]) -> torch.Tensor:
        if place["gpu"] != _identity(self._device):
            raise WeightTransferError(
                f"a learner rank on GPU {place['gpu']} is paired with an engine worker on GPU "
                f"{_identity(self._device)}: CUDA IPC needs rank i and worker i on one GPU; set "
                "learner.weight_transfer = 'shared_memory', or 'nccl' if they share no GPU"
            )
        values = [_from_json(name, place[name]) for name in _HANDLE]
        values[0] = self._device.index  # the same GPU may have another number here
        storage = torch.UntypedStorage._new_shared_cuda(*values)
        mapped = torch.empty(0, dtype=torch.uint8, device=self._device)
        return mapped.set_(storage)[: place["size"]]

    def _offer(self, number: int) -> dict[str, Any]:
        if number not in self._places:  # torch counts the handles that it creates: one for each buffer
            buffer = self._buffers[number]
            shared = zip(_HANDLE, buffer.untyped_storage()._share_cuda_(), strict=True)  # type: ignore[no-untyped-call]
            self._places[number] = {name: _to_json(value) for name, value in shared}
            self._places[number] |= {"gpu": _identity(self._device), "size": buffer.numel()}
        torch.cuda.synchronize(self._device)  # receivers do not wait for the streams of this process
        return self._places[number]

    def _wait_for_copies(self) -> None:
        torch.cuda.current_stream(self._device).synchronize()  # which makes them

    def _complete(self) -> None:
        self._mapped.clear()  # before the sender frees the memory
        torch.cuda.synchronize(self._device)

    def _release(self) -> None:
        self._places.clear()
        self._buffers.clear()
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()  # the engine on the same GPU needs the memory


def _identity(device: torch.device) -> str:
    return str(torch.cuda.get_device_properties(device).uuid)


def _to_json(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _from_json(name: str, value: Any) -> Any:
    return base64.b64decode(value) if name in ("handle", "counter_handle", "event_handle") else value


@contextmanager
def _no_expandable_segments() -> Iterator[None]:
    """Disable expandable segments (an option of PYTORCH_ALLOC_CONF), whose memory has no IPC handle."""
    settings = torch._C._accelerator_getAllocatorSettings()
    disabled = re.sub(r"(expandable_segments\s*:\s*)True", r"\1False", settings)
    if disabled == settings:
        yield
        return
    torch._C._accelerator_setAllocatorSettings(disabled)  # resets each option that its argument does not contain
    try:
        yield
    finally:
        torch._C._accelerator_setAllocatorSettings(settings)
