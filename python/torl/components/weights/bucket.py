"""Pack tensors into buckets of bytes, and unpack them."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from torl.base.errors import WeightTransferError

ALIGNMENT = 16
"""Alignment of a tensor in a bucket, in bytes: a view of any dtype is possible."""

_CHECKSUM_WORDS = 1 << 20  # words in one partial sum, which bounds the memory of a checksum

Entry = dict[str, Any]
"""A tensor in a bucket, or a piece of a tensor (JSON).

Keys: "name", "dtype", "shape", "whole" (bytes of the tensor), "start" (first byte of the piece in the tensor), "offset"
(first byte of the piece in the bucket), "bytes" (bytes of the piece).
"""


def pack(
    named_tensors: Iterable[tuple[str, torch.Tensor]], next_buffer: Callable[[], torch.Tensor]
) -> Iterator[tuple[list[Entry], torch.Tensor]]:
    """Copy tensors into buckets, and yield the entries and the used bytes of each.

    A tensor that does not fit into the rest of a bucket begins the next one; a tensor larger than a bucket is split.
    Each tensor is copied before the next is requested, and may then be freed or overwritten.

    Args:
        named_tensors: Names and tensors.
        next_buffer: Function that returns the memory of the next bucket.
    """
    buffer: torch.Tensor | None = None
    entries: list[Entry] = []
    used = 0
    for name, tensor in named_tensors:
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        start = 0
        while start < flat.numel() or start == 0:
            remaining = flat.numel() - start
            if buffer is not None and remaining > buffer.numel() - used:
                yield entries, buffer[:used]
                buffer = None
            if buffer is None:
                buffer, entries, used = next_buffer(), [], 0
            size = min(remaining, buffer.numel() - used)
            buffer[used : used + size].copy_(flat[start : start + size])
            entries.append(
                {
                    "name": name,
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                    "shape": list(tensor.shape),
                    "whole": flat.numel(),
                    "start": start,
                    "offset": used,
                    "bytes": size,
                }
            )
            used = min(used + math.ceil(size / ALIGNMENT) * ALIGNMENT, buffer.numel())
            start += size
            if size == 0:
                break
    if buffer is not None:
        yield entries, buffer[:used]


def unpack(buckets: Iterable[tuple[list[Entry], torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of packed buckets: views into their bucket, or copies if a tensor was split.

    Raises:
        WeightTransferError: A piece is missing.
    """
    name, whole, filled = "", None, 0
    for entries, payload in buckets:
        for entry in entries:
            if whole is not None and (entry["name"], entry["start"]) != (name, filled):
                raise WeightTransferError(f"a piece of {name} at byte {filled} was not sent")
            piece = payload[entry["offset"] : entry["offset"] + entry["bytes"]]
            if entry["bytes"] < entry["whole"]:
                if whole is None:
                    name, whole, filled = entry["name"], payload.new_empty(entry["whole"]), 0
                whole[filled : filled + entry["bytes"]].copy_(piece)
                filled += entry["bytes"]
                if filled < entry["whole"]:
                    continue
                piece, whole = whole, None
            yield entry["name"], piece.view(getattr(torch, entry["dtype"])).view(entry["shape"])
    if whole is not None:
        raise WeightTransferError(f"a piece of {name} at byte {filled} was not sent")


def checksum_of(payload: torch.Tensor) -> int:
    """Return a position-weighted sum of 8-byte words modulo 2^64, which detects changed, moved and swapped words.

    It is computed on the tensor's device, and equal on CPU and CUDA because integer sums do not round.
    """
    if payload.numel() % 8:
        payload = torch.nn.functional.pad(payload, (0, 8 - payload.numel() % 8))
    words = payload.view(torch.int64)
    total = torch.zeros((), dtype=torch.int64, device=payload.device)
    for start in range(0, words.numel(), _CHECKSUM_WORDS):
        piece = words[start : start + _CHECKSUM_WORDS]
        weights = torch.arange(start, start + piece.numel(), dtype=torch.int64, device=payload.device) * 2 + 1
        total += (piece * weights).sum()
    return int(total)
