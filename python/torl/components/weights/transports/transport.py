"""Base classes of transports: `Transport`, and `MappedMemory` for transports that share the sender's buffers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch

from torl.components.weights.control import SENDER, Control


class Transport(ABC):
    """Transfer of buckets of bytes from one sender to all its receivers.

    The sender fills a `buffer` and calls `send` with it, for each bucket; a receiver calls `receive` until it returns
    None. At the end both call `finish`. If the other side fails, any of these raises RuntimeError.

    Subclasses implement `buffer` and the methods whose names begin with an underscore.
    """

    def __init__(self, control: Control, device: torch.device | None) -> None:
        """Create one end of the transport.

        Args:
            control: Control messages between the ends.
            device: GPU of this end, for transports between GPUs. None selects the current GPU.
        """
        self.control = control

    @abstractmethod
    def buffer(self, number: int, size: int) -> torch.Tensor:
        """Return the sender's buffer with a number, 0 or 1, of `size` bytes."""

    def send(self, number: int, payload: torch.Tensor, header: Mapping[str, Any]) -> Any:
        """Send a header (JSON) and a payload, the first bytes of the buffer with this number.

        Returns:
            An object whose `wait` returns when the buffer may be overwritten.
        """
        place = self._offer(number)
        self.control.send_header({**header, "bytes": payload.numel(), "place": place, "last": False})
        return self._push(payload)

    def receive(self) -> tuple[dict[str, Any], torch.Tensor] | None:
        """Return the next header, and its payload in memory that the receiver owns. None at the end of the transfer."""
        header = self.control.receive_header()
        return None if header["last"] else (header, self._take(header["bytes"], header["place"]))

    def finish(self, *, wrong: bool = False) -> bool:
        """End a transfer on both sides, and return whether `wrong` was true at any of them."""
        if self.control.rank == SENDER:
            self.control.send_header({"entries": [], "last": True})
        self._complete()
        any_wrong = self.control.agree(wrong)
        self._release()
        return any_wrong

    def close(self) -> None:
        """Release all resources."""
        self._release()

    def _offer(self, number: int) -> dict[str, Any]:
        """Return the place of a filled buffer, from which receivers take the payload (JSON)."""
        return {}

    @abstractmethod
    def _push(self, payload: torch.Tensor) -> Any:
        """Send a payload. The `wait` of the returned object returns when the buffer may be overwritten."""

    @abstractmethod
    def _take(self, size: int, place: dict[str, Any]) -> torch.Tensor:
        """Return the next payload, of `size` bytes, in memory that the receiver owns."""

    def _complete(self) -> None:  # noqa: B027
        """Wait until no payload is in flight, before the two sides agree on the result of the transfer."""

    def _release(self) -> None:  # noqa: B027
        """Release memory that is not kept for the next transfer, after the two sides agreed."""


class MappedMemory(Transport):
    """Buffers of the sender that receivers on the same machine map: shared memory or CUDA IPC.

    Receivers map a buffer once, copy each payload out of it, and acknowledge the copy. They copy because vLLM keeps
    tensors until their layer is complete, which may take several buckets.
    """

    def __init__(self, control: Control, device: torch.device | None) -> None:
        super().__init__(control, device)
        self._mapped: dict[Any, torch.Tensor] = {}  # the buffers that a receiver has mapped, by place

    @abstractmethod
    def map(self, place: dict[str, Any]) -> torch.Tensor:
        """Map the buffer at a place that the sender has offered.

        Raises:
            WeightTransferError: The buffer cannot be mapped, or differs from the offered one.
        """

    def close(self) -> None:
        self._mapped.clear()
        super().close()

    def _push(self, payload: torch.Tensor) -> Any:
        return self.control.acknowledge()  # by the receivers, when they have copied the payload

    def _take(self, size: int, place: dict[str, Any]) -> torch.Tensor:
        key = tuple(place.values())
        if key not in self._mapped:
            self._mapped[key] = self.map(place)
        payload = self._mapped[key][:size].clone()
        self._wait_for_copies()
        self.control.acknowledge().wait()
        return payload

    def _wait_for_copies(self) -> None:
        """Wait until all copies that were started are complete."""
