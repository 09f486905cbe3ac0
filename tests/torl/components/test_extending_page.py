"""The code of docs/extending.md: its modules run, and its configurations choose from them."""

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from places import ROOT
from torl.base.options import load_object
from torl.run.config import TrainConfig
from torl.run.config.loading import load_config

PAGE = ROOT / "docs" / "extending.md"
FENCED = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# Settings that a section of the page needs from the rest of a configuration.
CHAT = '\n[rollout.format]\nname = "hermes"\n\n[data.template]\nname = "chat"\n'
NEEDS_CHAT = ("rollout.tools", "rollout.environment", "rollout.agent")


def blocks(language: str) -> list[str]:
    """Return the blocks of a language, without their indentation."""
    found = FENCED.findall(PAGE.read_text(encoding="utf-8"))
    return [re.sub(rf"(?m)^{indent}", "", text) for indent, tag, text in found if tag == language]


CONFIGURATIONS = [block for block in blocks("toml") if "[project" not in block]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with the modules of the page, from which Python imports."""
    names = set()
    for block in blocks("python"):
        name = block.splitlines()[0].removeprefix("# ")
        assert re.fullmatch(r"\w+\.py", name), f"the first line of a module names its file, got {name!r}"
        names.add(name.removesuffix(".py"))
        with (tmp_path / name).open("a", encoding="utf-8") as module:
            module.write(block)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("text", CONFIGURATIONS, ids=lambda text: text.splitlines()[0].strip("[]# "))
def test_a_configuration_of_the_page_is_accepted(text: str, project: Path) -> None:
    tree = tomllib.loads(text)
    assert tree
    if any(name in text for name in NEEDS_CHAT) and "rollout.format" not in text:
        text += CHAT
    if "extends" not in tree:
        text = f'extends = "demo"\n{text}'
    path = project / "train.toml"
    path.write_text(text, encoding="utf-8")
    config = load_config(TrainConfig, path)
    locations = re.findall(r'"(my_\w+:\w+)"', text)
    assert locations
    assert all(callable(load_object(location)) for location in locations)
    assert config.run.directory


def test_the_test_of_the_project_passes(project: Path) -> None:
    importlib.import_module("test_my_project").test_products_have_different_ids()
