"""What every way of sending bytes can do."""

from abc import ABC, abstractmethod
from typing import Any

import torch

from torl.weights.control import Control


class Transport(ABC):
    """Buckets of bytes from one sender to all its receivers. A failure of the other side raises RuntimeError.

    For each bucket the sender calls `buffer`, fills it, calls `offer`, sends the header with what that gave, and calls
    `push`; a receiver calls `take` with it. At the end both call `finish`, agree, and call `release`.
    """

    def __init__(self, control: Control, device: torch.device | None) -> None:
        """`device` is the GPU of this end, for transports between GPUs."""
        self.control = control

    @abstractmethod
    def buffer(self, number: int, size: int) -> torch.Tensor:
        """Memory of `size` bytes for the sender's buckets with that number (0 and 1 in turn)."""

    def offer(self, number: int, size: int) -> dict[str, Any]:
        """Where receivers find the first `size` bytes of a buffer that has been filled (JSON)."""
        return {}

    @abstractmethod
    def push(self, payload: torch.Tensor) -> Any:
        """Send a payload; the buffer may be written to again when the answer's `wait` has returned."""

    @abstractmethod
    def take(self, size: int, place: dict[str, Any]) -> torch.Tensor:
        """The next payload, in memory that is the receiver's own."""

    def finish(self) -> None:  # noqa: B027
        """Called on both sides before they agree that all has arrived: nothing may be under way when it returns."""

    def release(self) -> None:  # noqa: B027
        """Called on both sides after that: what should not be held until the next transfer can be let go."""

    def close(self) -> None:
        """Let go of everything."""
        self.release()
