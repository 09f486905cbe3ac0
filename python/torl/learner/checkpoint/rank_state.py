"""What a rank writes to disk and reads back: DeepSpeed's state, random generators, the model for other programs."""

import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torl.errors import CheckpointError

_FULL_DISK_BYTES = 1 << 20  # fewer free bytes than this after a failed write: the disk is full

# Everything beside the weights that a model directory may hold and a reader may want.
_COPIED_PATTERNS = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.py")
_NOT_COPIED = ("*.index.json",)


def save_rank_state(engines: Mapping[str, Any], directory: Path, *, rank: int, counters: Mapping[str, int]) -> None:
    """Write this rank's part of a checkpoint; every rank must call it. `engines` by the tags their files get.

    Raises:
        CheckpointError: the files could not be written, for example because the disk is full.
    """
    try:
        for tag, engine in engines.items():
            engine.save_checkpoint(str(directory), tag=tag, client_state={"torl": dict(counters)}, save_latest=False)
        generators = {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }
        torch.save(generators, directory / f"generators_rank_{rank}.pt")
    except (OSError, RuntimeError) as error:
        free = shutil.disk_usage(directory).free
        reason = "the disk is full" if free < _FULL_DISK_BYTES else str(error)
        raise CheckpointError(f"rank {rank} could not write its part of checkpoint {directory}: {reason}") from error


def load_rank_state(engines: Mapping[str, Any], directory: Path, *, rank: int) -> dict[str, int]:
    """Put back what `save_rank_state` wrote and return its counters; every rank must call it."""
    counters: dict[str, int] = {}
    for tag, engine in engines.items():
        path, client_state = engine.load_checkpoint(str(directory), tag=tag)
        if path is None:
            raise CheckpointError(f"checkpoint {directory}: DeepSpeed found no state of {tag!r} there for rank {rank}")
        counters = client_state["torl"]
    generators = torch.load(directory / f"generators_rank_{rank}.pt", weights_only=False)
    random.setstate(generators["python"])
    np.random.set_state(generators["numpy"])
    torch.set_rng_state(generators["torch"])
    if generators["cuda"]:
        torch.cuda.set_rng_state_all(generators["cuda"])
    return counters


def export_model(weights: Mapping[str, Tensor], source: Path, directory: Path) -> None:
    """Write a model directory that transformers and vLLM load: `weights`, and the source's other files.

    Raises:
        CheckpointError: the files could not be written.
    """
    from huggingface_hub import save_torch_state_dict

    try:
        directory.mkdir(parents=True, exist_ok=True)
        for pattern in _COPIED_PATTERNS:
            for path in source.glob(pattern):
                if not any(path.match(excluded) for excluded in _NOT_COPIED):
                    shutil.copyfile(path, directory / path.name)
        config_path = directory / "config.json"
        config = json.loads(config_path.read_text())
        dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in weights.values()}
        config.pop("torch_dtype", None)
        config["dtype"] = dtypes.pop() if len(dtypes) == 1 else config.get("dtype", "float32")
        config_path.write_text(json.dumps(config, indent=2) + "\n")
        save_torch_state_dict(dict(weights), directory, metadata={"format": "pt"})
        for path in directory.glob("*.safetensors"):
            path.chmod(config_path.stat().st_mode)  # they come readable by their owner only
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"the model could not be exported to {directory}: {error}") from error
