"""A rank's part of a checkpoint: its state is copied at once, and the copy is written while training continues.

It is restored from a checkpoint of any number of ranks and any ZeRO stage.
"""

import hashlib
import io
import json
import os
import pickle
import random
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torl.base.errors import CheckpointError
from torl.base.inputs import open_file, reason, require_archive_proportion
from torl.learner.checkpoint.shards import METADATA, ShardIndex, generators_name, shard_name
from torl.learner.messages import ShardWritten
from torl.learner.optimizer_shards import MOMENTS, OptimizerShards


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A rank's part of a checkpoint, in memory."""

    shards: dict[str, tuple[dict[str, Tensor], dict[str, str]]]
    """Tensors and metadata of each file."""
    generators: bytes
    """States of the random generators, from `rng_states`."""
    rank: int

    def write(self, directory: Path) -> dict[str, dict[str, Any]]:
        """Write the snapshot into an existing directory, and return the manifest entry of each file.

        Raises:
            OSError: A file could not be written.
        """
        files = {name: write_shard(directory / name, *shard) for name, shard in self.shards.items()}
        name = generators_name(self.rank)
        return files | {name: write_hashed(directory / name, [memoryview(self.generators)])}


def take_snapshot(engines: Mapping[str, OptimizerShards], *, rank: int, counters: Mapping[str, int]) -> Snapshot:
    """Copy this rank's part of the state to CPU memory: 12 bytes per parameter, divided by the number of ranks.

    Args:
        engines: Optimizer state of each model, by its tag in file names.
        rank: Number of this rank.
        counters: Counters to restore, such as optimizer steps.
    """
    shards = {}
    for tag, state in engines.items():
        tensors: dict[str, Tensor] = {}
        fragments: dict[str, Any] = {}
        for fragment in state.fragments:
            first, size = fragment.written_from - fragment.start, fragment.written_to - fragment.written_from
            if size <= 0:
                continue
            fragments[fragment.name] = (fragment.written_from, fragment.written_to, fragment.shape)
            for kind, view in state.tensors(fragment).items():
                # Not page-locked: that memory would never be freed, for a copy that is written once.
                tensors[f"{kind}/{fragment.name}"] = view.narrow(0, first, size).to("cpu", copy=True)
        facts = {"steps": state.steps, "counters": dict(counters)}
        metadata = {METADATA: json.dumps({"facts": facts, "fragments": fragments})}
        shards[shard_name(tag, rank)] = (tensors, metadata)
    return Snapshot(shards, rng_states(), rank)


def rng_states() -> bytes:
    """Return the states of Python's, NumPy's and torch's random generators, serialized by `torch.save`."""
    _, keys, *position = np.random.get_state(legacy=True)
    states = {
        "python": random.getstate(),
        "numpy": ("MT19937", np.asarray(keys).tolist(), *position),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }
    buffer = io.BytesIO()
    torch.save(states, buffer)
    return buffer.getvalue()


def restore_rng_states(path: Path) -> None:
    """Restore the states in a file with the result of `rng_states`.

    The file may come from another user, so it is read without code: tensors, numbers and texts only.

    Raises:
        OSError: The file cannot be read, or is far larger when decompressed.
        pickle.UnpicklingError: The file holds something else.
    """
    with open_file(path) as file:
        require_archive_proportion(file)
        states = torch.load(file, weights_only=True)
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


_PIECE_BYTES = 16 << 20  # written and hashed at a time, both without the interpreter lock
_DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


def write_shard(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> dict[str, Any]:
    """Write contiguous CPU tensors to a safetensors file, and return its manifest entry.

    The safetensors library computes no hash when it writes, so that each file would have to be read again.

    Raises:
        OSError: The file could not be written, such as on a full disk.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # aligns the data
    pieces = [memoryview(len(text).to_bytes(8, "little") + text)]
    pieces += [memoryview(tensor.view(torch.uint8).numpy().data) for tensor in tensors.values()]
    return write_hashed(path, pieces)


def write_hashed(path: Path, contents: Iterable[memoryview]) -> dict[str, Any]:
    """Write bytes to a file, flush it to disk, and return its manifest entry.

    Raises:
        OSError: The file could not be written.
    """
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


_FULL_DISK_BYTES = 1 << 20  # fewer free bytes than this after a failed write: the disk is full


class CheckpointWriter:
    """A thread of the rank that writes one snapshot at a time and reports the result."""

    def __init__(self, rank: int, report: Callable[[ShardWritten], None]) -> None:
        """Create a writer.

        Args:
            rank: Number of this rank, for errors.
            report: Function that is called in the thread with each result.
        """
        self._rank = rank
        self._report = report
        self._thread: threading.Thread | None = None

    def write(self, snapshot: Snapshot, directory: Path) -> None:
        """Start writing a snapshot. It is freed as soon as it is on disk."""
        self.wait()
        self._thread = threading.Thread(target=self._write, args=(snapshot, directory), name="checkpoint-writer")
        self._thread.start()

    def wait(self) -> None:
        """Wait for the current write, if any."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write(self, snapshot: Snapshot, directory: Path) -> None:
        try:
            self._report(ShardWritten(snapshot.write(directory)))
        except Exception as error:  # the controller decides whether the run ends
            full = isinstance(error, OSError) and shutil.disk_usage(directory).free < _FULL_DISK_BYTES
            reason = "the disk is full" if full else f"{type(error).__name__}: {error}"
            self._report(
                ShardWritten({}, f"rank {self._rank} could not write its part of checkpoint {directory}: {reason}")
            )


def restore_rank(engines: Mapping[str, OptimizerShards], directory: Path, *, rank: int) -> dict[str, int]:
    """Restore this rank's part of each model's state, and return the counters. Every rank must call this.

    A rank without a counterpart in the checkpoint keeps its random generators.

    Args:
        engines: Optimizer state of each model, by its tag in file names.
        directory: Directory that ranks have written to.
        rank: Number of this rank.

    Raises:
        CheckpointError: A file is missing, is damaged, or belongs to another model.
    """
    counters: dict[str, int] = {}
    for tag, state in engines.items():
        with ShardIndex(directory, tag) as index:
            _restore_state(state, index, directory)
            counters = index.facts["counters"]
        state.update_parameters()
    generators = directory / generators_name(rank)
    if generators.is_file():
        try:
            restore_rng_states(generators)
        except (OSError, pickle.UnpicklingError) as error:
            raise CheckpointError(f"{generators}: not the states of random generators: {reason(error)}") from error
    return counters


@torch.no_grad()
def _restore_state(state: OptimizerShards, index: ShardIndex, directory: Path) -> None:
    steps: int = index.facts["steps"]
    state.set_steps(steps)
    kinds: tuple[Any, ...] = ("master", *MOMENTS) if steps else ("master",)
    for fragment in state.fragments:
        if index.shapes.get(fragment.name) != fragment.shape:
            raise CheckpointError(
                f"checkpoint {directory} has {fragment.name} of shape {index.shapes.get(fragment.name)}, the model has "
                f"{fragment.shape}: it was written with another model"
            )
        views = state.tensors(fragment)
        for kind in kinds:
            views[kind].copy_(index.read(kind, fragment.name, fragment.start, fragment.stop))
