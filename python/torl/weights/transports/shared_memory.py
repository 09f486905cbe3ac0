"""Bytes through memory that processes of one machine share: in the place of CUDA IPC where there is no GPU.

The segments have no name: a receiver finds them among the open files of the sender. So they end with the processes that
hold them, however those end, nothing is left in /dev/shm, and its size, which is small in containers, is no limit.
"""

import mmap
import os
from typing import Any

import torch

from torl.errors import WeightTransferError
from torl.weights.control import Control
from torl.weights.transports.mapped_memory import MappedMemory


class SharedMemory(MappedMemory):
    """Buffers in anonymous files (memfd) that live as long as the channel."""

    def __init__(self, control: Control, device: torch.device | None) -> None:
        """Receivers get the bytes in CPU memory, whatever `device` is."""
        super().__init__(control, device)
        self._buffers: dict[int, torch.Tensor] = {}
        self._files: dict[int, int] = {}

    def buffer(self, number: int, size: int) -> torch.Tensor:
        """Mapped here as well; its pages become real when they are written to."""
        if number not in self._buffers or self._buffers[number].numel() != size:
            self._close_file(number)
            file = self._files[number] = os.memfd_create("torl-weights", os.MFD_CLOEXEC)
            os.ftruncate(file, size)
            self._buffers[number] = torch.frombuffer(mmap.mmap(file, size), dtype=torch.uint8)
        return self._buffers[number]

    def offer(self, number: int, size: int) -> dict[str, Any]:
        """The file among those of this process, and what tells it from others that have had its number."""
        status = os.fstat(self._files[number])
        return {"process": os.getpid(), "file": self._files[number], "inode": status.st_ino, "size": status.st_size}

    def map(self, place: dict[str, Any]) -> torch.Tensor:
        """Open the sender's file and map it."""
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
            # To read behind the end of a file that is shorter than was said would end this process.
            if (status.st_ino, status.st_size) != (place["inode"], place["size"]):
                raise WeightTransferError(f"{path} is not the shared memory that the sender has offered")
            return torch.frombuffer(mmap.mmap(file, status.st_size), dtype=torch.uint8)
        finally:
            os.close(file)

    def close(self) -> None:
        """Close the files; the memory is free when the last mapping ends."""
        super().close()
        for number in list(self._files):
            self._close_file(number)

    def _close_file(self, number: int) -> None:
        self._buffers.pop(number, None)
        if number in self._files:
            os.close(self._files.pop(number))
