"""The optimizer state in the files of all ranks: file names, an index for reading, the policy's weights.

Torch is loaded when the first tensor is read.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from torl.base.errors import CheckpointError
from torl.base.inputs import open_file, parse_json, stat_file
from torl.run.config import LoraConfig

if TYPE_CHECKING:
    from torch import Tensor

MODEL_PREFIX = "causal_lm."
"""Prefix of `Policy` for all names of the Hugging Face model."""

POLICY_TAG = "policy"
CRITIC_TAG = "critic"

METADATA = "torl"
"""Entry of a shard's metadata that describes its contents (JSON)."""


def shard_name(tag: str, rank: int) -> str:
    """Return the name of a rank's file with the optimizer state of a model."""
    return f"{tag}_rank_{rank:05d}.safetensors"


def generators_name(rank: int) -> str:
    """Return the name of a rank's file with the states of its random generators."""
    return f"generators_rank_{rank:05d}.pt"


def read_facts(path: Path) -> dict[str, Any]:
    """Return the values that a rank's file shares with all others (`ShardIndex.facts`), from its header alone.

    Raises:
        CheckpointError: The file cannot be read.
    """
    try:
        with open_file(path) as file:
            header = parse_json(file.read(int.from_bytes(file.read(8), "little")))
        facts: dict[str, Any] = parse_json(header["__metadata__"][METADATA])["facts"]
    except (OSError, ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return facts


class ShardIndex:
    """An index of the fragments of each parameter in the files of all ranks. Use as a context manager.

    Tensors are read on request.
    """

    def __init__(self, directory: Path, tag: str) -> None:
        """Open the files of all ranks for a model.

        Args:
            directory: Directory that ranks have written to.
            tag: `POLICY_TAG` or `CRITIC_TAG`.

        Raises:
            CheckpointError: The directory has no file of this model, or a file cannot be read.
        """
        from safetensors import SafetensorError, safe_open

        self._directory = directory
        self._pieces: dict[str, list[tuple[int, int, Any]]] = defaultdict(list)
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Shape of each parameter."""
        self._open_files = ExitStack()
        self.facts: dict[str, Any] = {}
        """Values that all files share: "steps" of the optimizer, "counters" of the rank."""
        files = sorted(directory.glob(f"{tag}_rank_*.safetensors"))
        if not files:
            raise CheckpointError(f"checkpoint {directory}: no rank has written a state of {tag!r}")
        try:
            for path in files:
                stat_file(path)  # safetensors would wait at a named pipe
                file = self._open_files.enter_context(safe_open(path, framework="pt"))
                metadata = parse_json(file.metadata()[METADATA])
                self.facts = metadata["facts"]
                for name, (start, stop, shape) in metadata["fragments"].items():
                    self._pieces[name].append((start, stop, file))
                    self.shapes[name] = tuple(shape)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"checkpoint {directory}: {path.name} cannot be read: {error}") from error
        for pieces in self._pieces.values():
            pieces.sort(key=lambda piece: piece[:2])

    def read(self, kind: str, name: str, start: int, stop: int) -> "Tensor":
        """Return elements of a flattened parameter.

        Args:
            kind: "master", or the name of a moment.
            name: Name of the parameter.
            start: First element.
            stop: Element after the last.

        Raises:
            CheckpointError: An element is in no file.
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
        self._open_files.close()


def read_policy_weights(directory: Path) -> dict[str, "Tensor"]:
    """Return the policy's complete weights in float32, from the directory that ranks have written to.

    Raises:
        CheckpointError: A file cannot be read.
    """
    with ShardIndex(directory, POLICY_TAG) as index:
        return {
            name.removeprefix(MODEL_PREFIX): index.read("master", name, 0, math.prod(shape)).view(shape)
            for name, shape in index.shapes.items()
        }


def adapter_products(weights: Mapping[str, "Tensor"], config: LoraConfig) -> Iterator[tuple[str, "Tensor"]]:
    """Yield alpha / rank * B A, which LoRA adds to a weight (arXiv 2106.09685, section 4.1), with the weight's name.

    Args:
        weights: Result of `read_policy_weights` for a run with adapters.
        config: Settings of the adapters.
    """
    for name, second in weights.items():
        if ".lora_B." in name:
            first = weights[name.replace(".lora_B.", ".lora_A.")]
            yield f"{name.partition('.lora_B.')[0]}.weight", config.alpha / config.rank * (second @ first)
