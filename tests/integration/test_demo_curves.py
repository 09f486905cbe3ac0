"""What the demos of chat models claim: they learn through their tools, and their controls do not. Minutes."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
STEPS = "30"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demos() -> Iterator[tuple[ModuleType, ModuleType]]:
    sys.path.insert(0, str(BENCHMARKS))
    yield import_module("demo_chat"), import_module("demo_search")
    sys.path.remove(str(BENCHMARKS))


def test_a_chat_model_learns_to_call_python_and_not_without_it(
    demos: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    """A guess is right once in seven times."""
    chat, _ = demos
    options = {**chat.prepare(tmp_path), **chat.SETTINGS, "run.steps": STEPS}
    found = {
        name: chat.train(tmp_path / name.replace(" ", "_"), {**options, **chat.RUNS[name]})
        for name in ("with the tool", "without it")
    }
    learned = found["with the tool"]
    assert learned["accuracy_after"] > learned["accuracy_before"] + 0.2
    assert learned["code_ratio_after"] > 0.8
    assert found["without it"]["accuracy_after"] < 0.25


def test_a_model_with_two_tools_learns_which_knows_and_not_without_their_answers(
    demos: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    """What only the corpus knows cannot be guessed more often, nor learned from others' results."""
    _, search = demos
    options = {**search.prepare(tmp_path), **search.SETTINGS, "run.steps": STEPS}
    found = {}
    for name, changes in search.RUNS.items():
        run = tmp_path / name.replace(" ", "_")
        search.train(run, {**options, **changes})
        found[name] = search.measured(run)
    for of_set in found["with both tools"].values():
        before, after = of_set["accuracy"]
        assert after > before + 0.2
        before, after = of_set["right tool"]
        assert before < 0.65  # either tool, whatever is asked
        assert after > before + 0.15
    for control in ("without tools", "shuffled results"):
        assert found[control]["codes"]["accuracy"][1] < 0.3
