"""Reading the optimizer's state out of the files of all ranks, whichever wrote them. Torch is loaded with the first."""

import json
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from torl.errors import CheckpointError
from torl.learner.checkpoint.names import METADATA, shard_pattern

if TYPE_CHECKING:
    from torch import Tensor


class ShardIndex:
    """Where each piece of each parameter lies. Use as a context manager; only what is asked for is read."""

    def __init__(self, directory: Path, tag: str) -> None:
        """Open every file that was written under a tag.

        Raises:
            CheckpointError: there is none, or one cannot be read.
        """
        from safetensors import SafetensorError, safe_open

        self._directory = directory
        self._pieces: dict[str, list[tuple[int, int, Any]]] = defaultdict(list)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._open = ExitStack()
        self.facts: dict[str, Any] = {}
        """The same in every file: "steps" of the optimizer, "counters" of the rank."""
        files = sorted(directory.glob(shard_pattern(tag)))
        if not files:
            raise CheckpointError(f"checkpoint {directory}: no rank has written a state of {tag!r}")
        try:
            for path in files:
                file = self._open.enter_context(safe_open(path, framework="pt"))
                metadata = json.loads(file.metadata()[METADATA])
                self.facts = metadata["facts"]
                for name, (start, stop, shape) in metadata["fragments"].items():
                    self._pieces[name].append((start, stop, file))
                    self.shapes[name] = tuple(shape)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"checkpoint {directory}: {path.name} cannot be read: {error}") from error
        for pieces in self._pieces.values():
            pieces.sort(key=lambda piece: piece[:2])

    def read(self, kind: str, name: str, start: int, stop: int) -> "Tensor":
        """Elements of a parameter's "master" or of one of its moments, flattened.

        Raises:
            CheckpointError: no file has all of them.
        """
        import torch

        found = []
        position = start
        for begin, end, file in self._pieces[name]:
            if begin <= position < min(end, stop):
                upto = min(end, stop)
                found.append(file.get_slice(f"{kind}/{name}")[position - begin : upto - begin])
                position = upto
        if position < stop:
            raise CheckpointError(f"checkpoint {self._directory}: element {position} of {name} is in no file")
        return torch.cat(found) if found else torch.empty(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
