"""One rank's part of a checkpoint: a safetensors file of flat pieces, written and hashed in one pass."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_PIECE_BYTES = 16 << 20  # written and hashed at a time: neither holds up the interpreter meanwhile
_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


def write_shard(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> dict[str, Any]:
    """Write contiguous CPU tensors as safetensors to the disk; returns what the manifest says of the file.

    The library's own writer gives no hash, so that every file would be read again.

    Raises:
        OSError: the disk is full, or will not be written to.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begin aligned
    pieces = [memoryview(len(text).to_bytes(8, "little") + text)]
    pieces += [memoryview(tensor.view(torch.uint8).numpy().data) for tensor in tensors.values()]
    return write_hashed(path, pieces)


def write_hashed(path: Path, contents: Iterable[memoryview]) -> dict[str, Any]:
    """Write bytes to the disk; returns what the manifest says of the file. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        for content in contents:
            for start in range(0, len(content), _PIECE_BYTES):
                piece = content[start : start + _PIECE_BYTES]
                digest.update(piece)
                while len(piece):
                    piece = piece[file.write(piece) :]
        os.fsync(file.fileno())
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": digest.hexdigest()}
