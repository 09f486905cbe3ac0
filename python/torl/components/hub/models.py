"""Names and downloads of Hub repositories, and models by name.

A name is `owner/name`, optionally with `@revision` for a branch, a tag or a commit. `package:NAME` is a model in a
Python package (`torl.components.hub.packages`).
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torl.base.errors import DataError
from torl.base.inputs import parse_json, read_file, reason, stat_file
from torl.base.paths import PACKAGE_PREFIX, resolve_path
from torl.base.runtime.http import PLAIN_REPLIES, require_plain
from torl.components.hub.packages import PACKAGE_MODEL_PREFIX, converted_directory, resolve_packaged_model

DATASET_PREFIX = "hf:"
_NAME = re.compile(r"([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")
# Settings of models whose head is more than one matrix product.
_HEAD_SETTINGS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
_ATTENTION_SETTINGS = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
_ATTENTION_LAYERS = {"full_attention", "sliding_attention"}
# Types of rotary positions that transformers changes with the longest sample of a row, and vLLM with max_model_len.
_VARYING_ROPE_TYPES = {"dynamic", "longrope"}
_FIXED_BASE = "alpha"  # with which HunYuan's "dynamic" positions do not vary
_MODEL_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


def is_name(path: str) -> bool:
    """Whether a path can be a name on the Hub. A path whose first directory exists is a local path."""
    if _NAME.fullmatch(path) is None:
        return False
    owner = path.partition("/")[0]
    return not owner.startswith(".") and not Path(owner).is_dir()


def split_name(name: str) -> tuple[str, str | None]:
    """Return the repository and the revision of a name."""
    found = _NAME.fullmatch(name)
    assert found is not None
    return found[1], found[2]


def dataset_name(path: str) -> str:
    """Return the name of a dataset without its prefix; raise `DataError` if it is malformed."""
    name = path.removeprefix(DATASET_PREFIX)
    if not _NAME.fullmatch(name):
        raise DataError(f"{path}: a dataset of the Hub is hf:owner/name or hf:owner/name@revision")
    return name


def resolve_model(path: str) -> Path:
    """Return the directory of a model: a local one, a path in torl (`torl:`), or a model in a package or on the Hub.

    Raises:
        DataError: The model does not exist and could not be downloaded: the message contains the command to install it
            or to download it elsewhere. Or a file of a local model is a named pipe or a device.
    """
    return _resolve_model(path, _MODEL_FILES)


def resolve_model_config(path: str) -> Path:
    """Return a directory with the `config.json` of a model. Weights are not downloaded from the Hub.

    Raises:
        DataError: The same conditions as in `resolve_model`.
    """
    return _resolve_model(path, ["*.json"])


def local_tokenizer_file(path: str) -> Path | None:
    """Return the `tokenizer.json` of a model that is on this machine or in the Hub's cache; None without one.

    Does not use the network, and converts no model of a package.

    Raises:
        DataError: A local path does not exist, or no model in a package has the name.
    """
    if is_local(path):
        directory = converted_directory(path) if path.startswith(PACKAGE_MODEL_PREFIX) else resolve_path(path)
        file = directory / "tokenizer.json"
        return file if file.is_file() else None
    from huggingface_hub import try_to_load_from_cache

    repository, revision = split_name(path)
    found = try_to_load_from_cache(repository, "tokenizer.json", revision=revision)
    return Path(found) if isinstance(found, str) else None


def require_trainable(directory: Path, setting: str = "model.path") -> None:
    """Check that the learner computes a model as the engine does, by its config.json. Without one, do nothing.

    Raises:
        DataError: transformers does not know the model, or the learner does not support a part of it.
    """
    path = directory / "config.json"
    if not path.is_file():
        return
    try:
        stated = parse_json(read_file(path))
    except (OSError, ValueError) as error:
        raise DataError(f"{setting} = {directory}: its config.json cannot be read: {reason(error)}") from error
    if isinstance(stated, dict) and (why := _stated_reason(stated)):
        raise DataError(_untrainable(setting, directory, stated.get("model_type"), why))
    settings = _read_settings(directory, setting)
    if why := untrainable_reason(settings):
        raise DataError(_untrainable(setting, directory, settings.model_type, why))


def require_plain_model(directory: Path) -> None:
    """Check a model directory that transformers loads: it reads regular files of the directory, and runs no code.

    An attention of the Hub is code, which transformers would download and run. `adapter_config.json` names another
    directory, which transformers would load instead.

    Raises:
        DataError: A file is a named pipe or a device, or names such an attention or another model, or config.json
            cannot be read.
    """
    require_regular_files(directory)
    if (directory / "adapter_config.json").exists():
        raise DataError(f"{directory}/adapter_config.json: the directory holds an adapter; merge it into its model")
    try:
        stated = parse_json(read_file(directory / "config.json"))
    except (OSError, ValueError) as error:
        raise DataError(f"{directory}/config.json: cannot be read: {reason(error)}") from error
    pending = [("", stated)]
    while pending:
        setting, value = pending.pop()
        if isinstance(value, dict):  # a section of a part of the model, or an attention for each part
            pending += [
                (setting or (name if name in _ATTENTION_SETTINGS else ""), each) for name, each in value.items()
            ]
        elif setting and isinstance(value, str) and "/" in value:
            raise DataError(f"{directory}/config.json: {setting} = {value} is code on the Hub, which is not executed")


def require_regular_files(directory: Path) -> None:
    """Raise `DataError` if a file of a model directory is a named pipe or a device: its readers would wait."""
    for path in sorted(_files_to_read(directory)):
        try:
            if path.exists() and not path.is_dir():
                stat_file(path)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {reason(error)}") from error


def _files_to_read(directory: Path) -> Iterator[Path]:
    """Yield the files that transformers and vLLM may open. An index may name files of weights elsewhere."""
    yield from directory.glob("*")
    yield from directory.glob("additional_chat_templates/*")
    for index in directory.glob("*.index.json"):
        with suppress(OSError, ValueError, AttributeError, KeyError, TypeError):  # its readers report the error
            names = parse_json(read_file(index))["weight_map"].values()
            yield from (directory / name for name in {*names})


def _untrainable(setting: str, directory: Path, model_type: Any, why: str) -> str:
    return f"{setting} = {directory}: a {model_type} model cannot be trained: {why}"


def _read_settings(directory: Path, setting: str) -> Any:
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
    except (AttributeError, OSError, TypeError, ValueError, StrictDataclassError) as error:
        if "auto_map" in (directory / "config.json").read_text(encoding="utf-8", errors="replace"):
            raise DataError(
                f"{setting} = {directory}: the model comes with code (auto_map in its config.json), which is not "
                "executed; use a model type of transformers"
            ) from error
        raise DataError(f"{setting} = {directory}: transformers cannot read its config.json: {error}") from error


def _stated_reason(settings: Mapping[str, Any]) -> str | None:
    """Return a reason that the settings themselves state, without transformers, whose import takes seconds."""
    if settings.get("quantization_config") is not None:
        return "its weights are quantized (quantization_config); use the unquantized model"
    text_config = settings.get("text_config")
    decoder = text_config if isinstance(text_config, dict) else settings
    for name in _HEAD_SETTINGS:
        if decoder.get(name) not in (None, 1, 1.0):
            return f"its config sets {name}, but the learner applies the plain head"
    return None


def untrainable_reason(settings: Any) -> str | None:
    """Return the reason why the learner cannot train a model with this config of transformers, or None."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if settings.is_encoder_decoder or settings.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "it is not a decoder of text (transformers' AutoModelForCausalLM)"
    decoder = settings.get_text_config()
    if reason := _stated_reason(settings.to_dict() | {"text_config": decoder.to_dict()}):
        return reason
    layers = set(getattr(decoder, "layer_types", None) or ()) - _ATTENTION_LAYERS
    if layers or not hasattr(decoder, "num_attention_heads"):
        kinds = ", ".join(sorted(layers)) or "no attention"
        return f"its layers ({kinds}) would mix the samples of a packed row; only causal attention separates them"
    parameters = getattr(decoder, "rope_parameters", None) or {}  # for all layers, or by the type of a layer
    found = [each for each in (parameters, *parameters.values()) if isinstance(each, dict)]
    rope_types: set[Any] = {each.get("rope_type") for each in found if not each.get(_FIXED_BASE)}
    if varying := sorted(rope_types & _VARYING_ROPE_TYPES):
        return (
            f"its rotary positions (rope_type = {varying[0]}) depend on the longest sample of a row, and are others in "
            "the engine"
        )
    return None


def pinned_model(path: str) -> str:
    """Return the name of a Hub model with its commit, and other paths unchanged.

    Raises:
        DataError: The same conditions as in `resolve_model`.
    """
    located = resolve_model(path)
    if is_local(path):
        return path
    commit = located.name
    return f"{split_name(path)[0]}@{commit}" if COMMIT.fullmatch(commit) else path


def snapshot(name: str, kind: str, patterns: list[str], option: str) -> Path:
    """Download the missing files of a repository and return its directory in the cache.

    Args:
        name: Name on the Hub.
        kind: "model" or "dataset".
        patterns: Patterns of the files to download.
        option: Option for a local directory, for error messages.

    Raises:
        DataError: The repository could not be downloaded.
    """
    from huggingface_hub import snapshot_download

    repository, revision = split_name(name)
    with hub_errors(name, kind, option):
        return Path(snapshot_download(repository, repo_type=kind, revision=revision, allow_patterns=patterns))


@contextmanager
def hub_errors(name: str, kind: str, option: str) -> Iterator[None]:
    """Convert errors of the Hub and the network to a `DataError` with the command to download the repository.

    Compressed replies are such errors: they may be far larger than they look.
    """
    from httpx2 import HTTPError
    from huggingface_hub import get_session
    from huggingface_hub.errors import LocalEntryNotFoundError

    session = get_session()  # the library's own, for all of its requests
    session.headers.update(PLAIN_REPLIES)
    if require_plain not in session.event_hooks["response"]:
        session.event_hooks["response"].append(require_plain)
    try:
        yield
    except (LocalEntryNotFoundError, HTTPError, OSError, ValueError) as error:
        repository, revision = split_name(name.removeprefix(DATASET_PREFIX))
        flags = ("" if kind == "model" else " --repo-type dataset") + (f" --revision {revision}" if revision else "")
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(
            f"{name}: not a local directory, and the {kind} could not be downloaded from the Hub: {reason}. "
            f"On a machine with a network, run `hf download {repository}{flags} --local-dir {Path(repository).name}`, "
            f"copy the directory to this machine and pass its path {option}"
        ) from error


def _resolve_model(path: str, patterns: list[str]) -> Path:
    if path.startswith(PACKAGE_MODEL_PREFIX):
        return resolve_packaged_model(path)
    if not is_local(path):
        return snapshot(path, "model", patterns, "as --model.path")
    directory = resolve_path(path)
    require_regular_files(directory)
    return directory


def is_local(path: str) -> bool:
    """Whether a path is a directory on this machine, in torl or in a package, or cannot be a name on the Hub."""
    return (
        path.startswith((PACKAGE_PREFIX, PACKAGE_MODEL_PREFIX)) or Path(path).expanduser().exists() or not is_name(path)
    )
