"""Settings and imports of the slow tiers and the benchmarks, which run seldom and would find a renamed one late."""

import ast
import importlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from torl.run.config import FinetuneConfig, TrainConfig
from torl.run.config.commands import EvaluateConfig, SampleConfig
from torl.run.config.help import settings_of

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "tests/browser", "tests/cluster", "tests/gpu", "tests/integration", "tests/interop")
FOLDERS += ("tests/peers", "tests/real", "tests/sandbox", "tests/topology")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
FILES_AND_TENSORS = r".*\.(safetensors|gguf|toml|log|txt|embed_tokens|norm|weight)"
NOT_SETTINGS = {"run.stepz", "rollout.max_tool_cals", "learner.finetune", "learner.train_step"}  # mistakes, modules
NAMES = {
    setting.name
    for config in (TrainConfig, FinetuneConfig, SampleConfig, EvaluateConfig)
    for setting in settings_of(config)
}
SECTIONS = {name.partition(".")[0] for name in NAMES} & TrainConfig.model_fields.keys()


def settings_in(text: str) -> Iterator[str]:
    """Yield the settings of an option, a key, a keyword with `__` for the dot, or TOML, by dotted names."""
    if option := re.fullmatch(r"(?:--)?([a-z_]+(?:\.[a-z_0-9]+)+)", text.replace("__", ".")):
        yield option[1]
    section = ""
    for line in text.splitlines() if "\n" in text else ():
        if header := re.match(r"\[([a-z_.]+)\]", line):
            section = header[1]
        elif section and (key := re.match(r"([a-z_.]+) = ", line)):
            yield f"{section}.{key[1]}"


def unknown(source: str) -> list[str]:
    """The settings that a program names and no configuration has. Options below those that exist are not checked."""
    nodes = list(ast.walk(ast.parse(source)))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    texts += [node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg]
    return [
        name
        for text in texts
        for name in settings_in(text)
        if name.partition(".")[0] in SECTIONS
        and not any(name == known or name.startswith(f"{known}.") for known in NAMES)
        and not re.fullmatch(FILES_AND_TENSORS, name)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_of_a_tier_exist(path: Path) -> None:
    assert set(unknown(path.read_text(encoding="utf-8"))) <= NOT_SETTINGS


def test_renamed_settings_are_found() -> None:
    source = 'f({"checkpoint.keep": 1}, "--run.stepz", rollout__max_tool_cals=1, a="""\n[learner]\nrank = {}\n""")'
    assert set(unknown(source)) == {"checkpoint.keep", "run.stepz", "learner.rank", "rollout.max_tool_cals"}
    assert not unknown('f({"checkpoint.keep_last": 1}, "--rollout.tools.python.workers", "model.safetensors")')


def missing(source: str) -> list[str]:
    """The names that a program imports from torl and that are not there."""
    return [
        f"{module}.{alias.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (module := node.module or "").partition(".")[0] == "torl"
        for alias in node.names
        if not exists(module, alias.name)
    ]


def exists(module: str, name: str) -> bool:
    """Whether a module has a name, or a package a module. True for one that needs a library of another environment."""
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        return not str(error.name).startswith("torl")
    return hasattr(found, name) or (hasattr(found, "__path__") and find_spec(f"{module}.{name}") is not None)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_of_a_tier_exist(path: Path) -> None:
    assert not missing(path.read_text(encoding="utf-8"))


def test_missing_imports_are_found() -> None:
    source = "from torl.learner.launch import start_ranks, _freeze_modules\nfrom torl.learner import launch"
    assert missing(source) == ["torl.learner.launch._freeze_modules"]
