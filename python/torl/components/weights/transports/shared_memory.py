"""Transport through memory that processes on one machine share, for machines without a GPU.

The segments have no name: a receiver opens them through the sender's open files. They end with the processes that use
them, however these exit; no file remains in /dev/shm, and its size, which is small in containers, does not matter.
"""

import mmap
import os
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
