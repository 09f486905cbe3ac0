"""The checks of the exported model: the files that the export writes, and the weights of the last checkpoint."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torl.base.errors import DataError, TorlError
from torl.base.inputs import parse_json, read_file
from torl.components.hub import require_regular_files
from torl.run.config import LearningConfig
from torl.run.records.files import EXPORT_DIRECTORY
from torl.training.policy_versions import load_model, write_model_files
from torl_lab.audit.checks import Check

_CONFIG: Final = "config.json"
_INDEX: Final = "model.safetensors.index.json"
_WEIGHTS: Final = "adapter_model.safetensors"
_ADAPTER: Final = ("adapter/adapter_config.json", f"adapter/{_WEIGHTS}")
_PRECISION: Final = ("dtype", "torch_dtype")
"""Entries of config.json that an export replaces; they are compared with the weights."""
_ADAPTER_TOLERANCE = {"float32": 1e-5, "bfloat16": 2.0**-6}
_EXPORT_KEYS = {"dtype", "torch_dtype", "_name_or_path", "transformers_version"}  # may change in an export


def check_exported_files(check: Check, directory: Path, config: LearningConfig) -> None:
    """Compare the files of a finished run's model, but for its weights, with those that an export writes now."""
    exported = directory / EXPORT_DIRECTORY
    with check.reading(f"{EXPORT_DIRECTORY}/"), tempfile.TemporaryDirectory(prefix="torl-export-") as scratch:
        try:
            write_model_files(config, Path(scratch))
        except TorlError as error:
            check.add_note(f"the files of {EXPORT_DIRECTORY}/ were not compared: {error}")
            return
        expected = {path.name: path.read_bytes() for path in Path(scratch).iterdir()}
        weights = _weight_files(exported)
        adapter = () if config.model.adapters is None else _ADAPTER
        found = {str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_file()}
        for name in sorted(found - {*expected, *weights, *adapter}):
            check.add(False, f"{EXPORT_DIRECTORY}/{name}: expected no such file")
        for name in sorted({*expected, *weights, *adapter} - found):
            check.add(False, f"{EXPORT_DIRECTORY}/{name}: expected a file, found none")
        for name in sorted(expected.keys() & found):
            data = (exported / name).read_bytes()
            if name == _CONFIG:
                same = _without_precision(expected[name]) == _without_precision(data)
            else:
                same = expected[name] == data
            check.add(same, f"{EXPORT_DIRECTORY}/{name}: expected the file of the initial model, found another")


def _weight_files(exported: Path) -> set[str]:
    """Return the names of the files of weights: one, or several with an index."""
    if not (exported / _INDEX).is_file():
        return {"model.safetensors"}
    return {_INDEX, *parse_json(read_file(exported / _INDEX))["weight_map"].values()}


def _without_precision(data: bytes) -> Mapping[str, Any]:
    return {name: value for name, value in parse_json(data).items() if name not in _PRECISION}


def check_export(check: Check, policy: Any, directory: Path, config: LearningConfig) -> None:
    """Compare the exported model with the weights of the last checkpoint, rounded to its precision."""
    import torch

    try:
        exported = load_model(directory, "auto")
    except DataError as error:
        check.add(False, f"{directory.name}/: expected the exported model, found {error}")
        return
    found = dict(exported.named_parameters())
    before, after = policy.config.to_dict(), exported.config.to_dict()
    for key in sorted({*before, *after} - _EXPORT_KEYS):
        if before.get(key) != after.get(key):
            check.expect(f"{directory.name}/config.json, {key}", before.get(key), after.get(key))
    # Products of adapters are summed in another order, which may round a merged weight to a neighbor.
    tolerance = 0.0 if config.model.adapters is None else _ADAPTER_TOLERANCE[config.learner.dtype]
    for name, weight in policy.named_parameters():
        other = found.get(name)
        expected = f"{config.learner.dtype} {tuple(weight.shape)}"
        actual = "none" if other is None else f"{str(other.dtype).removeprefix('torch.')} {tuple(other.shape)}"
        if other is None or expected != actual:
            check.expect(f"{directory.name}/, {name}", expected, actual)
        elif not torch.allclose(other.float(), weight.to(other.dtype).float(), rtol=tolerance, atol=tolerance * 1e-2):
            check.add(False, f"{directory.name}/: expected {name} as in the last checkpoint, found other weights")


def check_adapter(check: Check, weights: Mapping[str, Any], exported: Path, config: LearningConfig) -> None:
    """Compare the adapter, if any, next to an exported model with the weights of the last checkpoint."""
    from safetensors.torch import load_file

    adapters = config.model.adapters
    if adapters is None:
        return
    place = f"{EXPORT_DIRECTORY}/adapter"
    with check.reading(place):
        # peft's names: in its wrapper of the model, and without the name that an adapter has in there.
        expected = {f"base_model.model.{name.replace('.default.', '.')}": each for name, each in weights.items()}
        require_regular_files(exported / "adapter")
        found = load_file(exported / "adapter" / _WEIGHTS)
        check.expect(f"{place}, names", sorted(expected), sorted(found))
        for name in sorted(expected.keys() & found.keys()):
            same = expected[name].to(found[name].dtype).equal(found[name])
            check.add(same, f"{place}: expected {name} as in the last checkpoint, found another")
        settings = parse_json(read_file(exported / "adapter" / "adapter_config.json"))
        targets = {name.partition(".lora_")[0].rpartition(".")[2] for name in weights}
        check.expect(f"{place}, rank", adapters.rank, settings["r"])
        check.expect(f"{place}, alpha", adapters.alpha, settings["lora_alpha"])
        check.expect(f"{place}, layers", sorted(targets), sorted(settings["target_modules"]))
