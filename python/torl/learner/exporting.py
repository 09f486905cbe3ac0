"""Exporting a policy as a model directory, with a few weights in memory at a time."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torl.base.errors import CheckpointError
from torl.base.inputs import parse_json, read_file

if TYPE_CHECKING:
    from torch import Tensor

MAX_FILE_BYTES = 2_000_000_000
"""Maximum size of a file of weights, which is also the memory that an export takes; at least the largest tensor."""

# Files of a model directory other than its weights.
_COPIED_PATTERNS = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.py")
_NOT_COPIED = ("*.index.json",)
_TOKENS_OF_GENERATION = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


def export_model(
    weights: Iterable[tuple[str, "Tensor"]], source: Path, directory: Path, stop_token_ids: Sequence[int] = ()
) -> None:
    """Write a model directory that transformers and vLLM load.

    Args:
        weights: Names in the model's files and complete weights in CPU memory. Exhausted even if writing fails, since
            other ranks may take part in gathering each.
        source: Directory of the initial model, whose other files are copied.
        directory: Directory to write.
        stop_token_ids: Tokens that end a response of the policy.

    Raises:
        CheckpointError: A file could not be written.
    """
    from safetensors import SafetensorError

    stream = iter(weights)
    try:
        copy_model_files(source, directory)
        bytes_by_dtype = _write_weights(stream, directory)
        config_path = directory / "config.json"
        config = parse_json(read_file(config_path))
        config.pop("torch_dtype", None)
        # A few biases of routers stay in float32.
        config["dtype"] = max(bytes_by_dtype, key=bytes_by_dtype.__getitem__)
        config_path.write_text(json.dumps(config, indent=2) + "\n")
        add_stop_tokens(directory, stop_token_ids)
        for path in directory.glob("*.safetensors"):
            path.chmod(config_path.stat().st_mode)  # they are created readable by their owner only
    except (OSError, RuntimeError, SafetensorError, ValueError) as error:
        for _ in stream:
            pass
        raise CheckpointError(f"the model could not be exported to {directory}: {error}") from error


def copy_model_files(source: Path, directory: Path) -> None:
    """Copy the files of a model directory other than its weights."""
    directory.mkdir(parents=True, exist_ok=True)
    for pattern in _COPIED_PATTERNS:
        for path in source.glob(pattern):
            if not any(path.match(excluded) for excluded in _NOT_COPIED):
                shutil.copyfile(path, directory / path.name)


def add_stop_tokens(directory: Path, stop_token_ids: Sequence[int]) -> None:
    """Add tokens to those that generation_config.json names as ends of a response: transformers and vLLM stop there.

    A model directory without this file gets one, with the tokens that its config.json names.
    """
    path = directory / "generation_config.json"
    if path.is_file():
        settings = parse_json(read_file(path))
    else:
        config = parse_json(read_file(directory / "config.json"))
        settings = {name: config[name] for name in _TOKENS_OF_GENERATION if config.get(name) is not None}
    named = settings.get("eos_token_id")
    ends = named if isinstance(named, list) else [] if named is None else [named]
    if missing := [token for token in stop_token_ids if token not in ends]:
        path.write_text(json.dumps({**settings, "eos_token_id": [*ends, *missing]}, indent=2) + "\n")


def _write_weights(weights: Iterable[tuple[str, "Tensor"]], directory: Path) -> Counter[str]:
    """Write the files of the weights, and their index if there are several; returns the bytes of each dtype."""
    for path in directory.glob("model*.safetensors*"):
        path.unlink()  # of an earlier export
    files: list[list[str]] = []
    shard: dict[str, Tensor] = {}
    size = 0
    bytes_by_dtype: Counter[str] = Counter()
    for name, tensor in weights:
        if shard and size + tensor.nbytes > MAX_FILE_BYTES:
            files.append(_write_shard(shard, directory, len(files)))
            shard, size = {}, 0
        shard[name] = tensor.contiguous()
        size += tensor.nbytes
        bytes_by_dtype[str(tensor.dtype).removeprefix("torch.")] += tensor.nbytes
    files.append(_write_shard(shard, directory, len(files)))
    if len(files) == 1:
        _shard_path(directory, 0).rename(directory / "model.safetensors")
        return bytes_by_dtype
    file_of_weight: dict[str, str] = {}
    for number, names in enumerate(files):
        file = f"model-{number + 1:05d}-of-{len(files):05d}.safetensors"
        _shard_path(directory, number).rename(directory / file)
        file_of_weight |= dict.fromkeys(names, file)
    index = {"metadata": {"total_size": bytes_by_dtype.total()}, "weight_map": file_of_weight}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return bytes_by_dtype


def _write_shard(shard: dict[str, "Tensor"], directory: Path, number: int) -> list[str]:
    """Write one file, whose name does not count all files yet; returns the names of its weights."""
    from safetensors.torch import save_file

    save_file(shard, _shard_path(directory, number), metadata={"format": "pt"})
    return list(shard)


def _shard_path(directory: Path, number: int) -> Path:
    return directory / f"model-{number + 1:05d}.safetensors"
