"""The reference pages: written from the code, and complete."""

import importlib.util
import re
from pathlib import Path

import pytest

from torl.config import TrainConfig
from torl.config.help import settings_of
from torl.records import metric_names

SCRIPT = Path(__file__).parents[2] / "scripts" / "write_reference.py"
spec = importlib.util.spec_from_file_location("write_reference", SCRIPT)
assert spec is not None
assert spec.loader is not None
write_reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(write_reference)
PAGES: dict[str, str] = write_reference.pages()


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_current(name: str) -> None:
    """If it fails: make reference."""
    assert (write_reference.FOLDER / name).read_text(encoding="utf-8") == PAGES[name]


def test_settings_page_lists_every_setting_with_its_meaning() -> None:
    rows = dict(re.findall(r"^\| \**`([a-z_.0-9*]+)`\** \|.*\| (.+) \|$", PAGES["settings.md"], flags=re.MULTILINE))
    assert {setting.name for setting in settings_of(TrainConfig)} <= rows.keys()
    assert all(rows.values())


def test_metrics_page_lists_every_metric_with_its_meaning() -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", PAGES["metrics.md"], flags=re.MULTILINE))
    constants = {value for name, value in vars(metric_names).items() if name.isupper() and not name.startswith("_")}
    names = {value for value in constants if isinstance(value, str) and not value.endswith("/")}
    patterns = {"tool/<tool>/<count>", "evaluation/<set>/<name>", "by/<value>/<name>", "selection/masked/<reason>"}
    assert names | patterns <= rows.keys()
    assert [name for name, meaning in rows.items() if len(meaning) < 10] == []
