"""Claims of the demos of chat models: they learn through their tools, and their controls do not. Minutes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.demo import chat, dialogue, mcp, search
from cli import ROOT
from torl.run.records import metric_names as names

STEPS = "30"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chat_options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Options of the runs that train the model of the chat demo."""
    return {**chat.prepare(tmp_path_factory.mktemp("chat")), **chat.SETTINGS, "run.steps": STEPS}


def test_a_chat_model_learns_to_call_python_and_not_without_it(chat_options: dict[str, str], tmp_path: Path) -> None:
    """A guess is right once in seven times."""
    found = {
        name: chat.train(tmp_path / name.replace(" ", "_"), {**chat_options, **chat.RUNS[name]})
        for name in ("with the tool", "without it")
    }
    learned = found["with the tool"]
    assert learned["accuracy_after"] > learned["accuracy_before"] + 0.2
    assert learned["code_ratio_after"] > 0.8
    assert found["without it"]["accuracy_after"] < 0.25


def test_a_chat_model_learns_by_an_agent_program(chat_options: dict[str, str], tmp_path: Path) -> None:
    options = {**chat_options, "run.steps": "12", **chat.RUNS["by an agent program"]}
    rises(chat.train(tmp_path / "run", options))


def test_a_chat_model_learns_to_call_an_mcp_server_as_it_does_a_tool_of_the_run(tmp_path: Path) -> None:
    options = {**mcp.prepare(tmp_path), **mcp.SETTINGS, "run.steps": mcp.STEPS}
    for name, changes in mcp.RUNS.items():
        rises(mcp.train(tmp_path / name.replace(" ", "_"), {**options, **changes}))


def test_a_model_with_two_tools_learns_which_knows_and_not_without_their_answers(tmp_path: Path) -> None:
    """Facts that only the corpus knows cannot be guessed more often, nor learned from others' results."""
    options = {**search.prepare(tmp_path), **search.SETTINGS, "run.steps": search.STEPS}
    found = {}
    for name, changes in search.RUNS.items():
        run = tmp_path / name.replace(" ", "_")
        search.train(run, {**options, **changes})
        found[name] = search.measured(run)
    for of_set in found["with both tools"].values():
        before, after = of_set["accuracy"]
        assert after > before + 0.2
        before, after = of_set[names.RIGHT_TOOL.label]
        assert before < 0.7  # either tool, the one that knows a little more often
        assert after > before + 0.15
    for control in ("without tools", "shuffled results"):
        assert found[control]["codes"]["accuracy"][1] < 0.3


def test_a_model_learns_to_ask_its_environment_and_not_where_that_tells_anything(tmp_path: Path) -> None:
    """A guess is right once in ten times."""
    options = {**dialogue.prepare(tmp_path), **dialogue.SETTINGS, "run.steps": dialogue.STEPS}
    found = {}
    for name, changes in dialogue.RUNS.items():
        run = tmp_path / name.replace(" ", "_")
        dialogue.train(run, {**options, **changes})
        found[name] = dialogue.measured(run)
        audit = subprocess.run([sys.executable, "-m", "torl", "verify", "--trust", str(run)], cwd=ROOT, check=False)
        assert audit.returncode == 0
    informed = found["told the color"]
    assert informed["accuracy"][1] > informed["accuracy"][0] + 0.2
    assert informed["asks"][1] > 0.75
    assert found["told any color"]["accuracy"][1] < 0.25


def rises(summary: dict[str, Any]) -> None:
    """More right answers, and more responses with a call."""
    assert summary["accuracy_after"] > summary["accuracy_before"] + 0.1
    assert summary["code_ratio_after"] > summary["code_ratio_before"] + 0.2
