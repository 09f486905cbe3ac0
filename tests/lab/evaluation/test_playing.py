"""The cells of `torl evaluate` on a scripted engine: played together, in order, and complete or played again."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scripted_engine import ENCODER, ScriptedEngine
from scripted_run import ScriptedRun, ScriptedTool
from torl.base.errors import EngineError, ToolUnavailableError
from torl.base.types import Outcome, Prompt
from torl.rollout.startup import Rollouts
from torl.run.config import EvaluateModelConfig
from torl.run.display.console import Console
from torl_lab.evaluation.cells import EvaluationCell
from torl_lab.evaluation.playing import play_cells

CONFIG = EvaluateModelConfig.model_validate(
    {"model": {"path": ""}, "evaluation": {"greedy": True, "samples_per_problem": 2}}
)


class AwayTool(ScriptedTool):
    """A tool that no call reaches."""

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        raise ToolUnavailableError("found no server")


def cells(directory: Path, prompts: list[Prompt]) -> list[tuple[EvaluationCell, list[Prompt]]]:
    """Two sets of four problems, with one call and without."""
    return [
        (EvaluationCell(directory, name, calls, mode), prompts[start : start + 4])
        for name, start in (("first", 0), ("second", 4))
        for calls in (1, 0)
        for mode in ("greedy", "sampled")
    ]


def scripted(directory: Path, **options: Any) -> tuple[ScriptedRun, ScriptedEngine]:
    """Each episode calls the tool if it may, and answers correctly."""
    run = ScriptedRun(directory, rollout={"max_response_tokens": 100, "speculative_execution": False}, **options)
    run.player.engine = engine = ScriptedEngine(
        lambda request: ENCODER.encode("\\boxed{1}" if request.endswith("/1") else "\n```python\n1\n```\n```output")
    )
    return run, engine


async def play(run: ScriptedRun, directory: Path) -> str:
    """Play all cells, and return what was printed."""
    said = io.StringIO()
    for name in ("first", "second"):
        (directory / name).mkdir()
    await play_cells(cells(directory, run.prompts), Rollouts(run.player, run.reward), CONFIG, Console(said))
    return said.getvalue()


async def test_all_cells_are_played_together(tmp_path: Path) -> None:
    """Episodes with other numbers of calls have the same names and seeds: their requests differ by their numbers."""
    run, engine = scripted(tmp_path)
    lines = (await play(run, tmp_path)).splitlines()
    assert engine.most_open == 48
    sizes = {(cell.calls, cell.mode, len(cell.file.read())) for cell, _ in cells(tmp_path, run.prompts)}
    assert sizes == {(calls, mode, 4) for calls in (0, 1) for mode in ("greedy", "sampled")}
    assert len(lines) == 8
    assert len(set(engine.begun.values())) < len(engine.begun)


async def test_cells_begin_in_order(tmp_path: Path) -> None:
    run, engine = scripted(tmp_path, slots=2)
    await play(run, tmp_path)
    episodes = [name.split("/")[0] for name in engine.begun.values() if name.endswith("/0")]
    of_sets = [[f"{name}-greedy"] * 4 + [f"{name}-sampled"] * 8 for name in ("first", "second")]
    assert episodes == of_sets[0] * 2 + of_sets[1] * 2


async def test_cells_without_calls_are_played_although_the_tool_is_away(tmp_path: Path) -> None:
    run, _ = scripted(tmp_path)
    run.player.tools = {"python": AwayTool()}
    with pytest.raises(ToolUnavailableError, match="found no server"):
        await play(run, tmp_path)
    assert {cell.calls for cell, _ in cells(tmp_path, []) if cell.file.read()} == {0}


async def test_error_of_the_engine_ends_all_cells(tmp_path: Path) -> None:
    run, engine = scripted(tmp_path)
    engine.fail_on = "second-sampled/p5/0/0"
    with pytest.raises(EngineError, match="the engine died"):
        await play(run, tmp_path)
    assert (engine.open, run.player.slots.sampling) == (0, 0)
