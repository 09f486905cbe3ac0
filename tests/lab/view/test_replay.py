"""Calls of played episodes run again in a real sandbox: reproduced with their seeds and states, or with differences."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from builders import asked, grade, play_trajectories, player, write_config
from scripted_engine import ENCODER, ScriptedEngine
from torl.components.tools.python import InterpreterState
from torl.run.config import TrainConfig
from torl.run.records.rows import TrajectoryRecord, encode_trajectory
from torl_lab.view.columns import IndexReader
from torl_lab.view.replay import Replayer
from torl_lab.view.requests import CannotReplayError
from torl_lab.view.rows import Place, find_place
from torl_lab.view.sources import Target
from torl_sandbox import SandboxPool
from viewed_runs import indexed, lines, row

SEED, STEP = 11, 3
# Numbers from the seed, a set in the order of string hashes, and variables of the call before.
CALLS = {
    "fresh": ["import random\nprint(random.random(), {'a', 'bc'})\n", "import random\nprint(random.random())\n"],
    "episode": ["import random\nx = random.random()\nprint(x)\n", "x += random.random()\nprint(x)\n"],
    "replay": ["y = 5\nprint(y)\n", "print(y + 1)\n1 / 0\n"],
}


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with closing(SandboxPool(1)) as opened:
        yield opened


async def played_run(directory: Path, pool: SandboxPool, state: InterpreterState) -> IndexReader:
    """A run whose only step has one episode with two calls."""
    turns = [f"Run this:\n```python\n{code}```\n```output" for code in CALLS[state]]
    engine = ScriptedEngine(lambda name: ENCODER.encode([*turns, "\\boxed{1}"][int(name.rpartition("/")[2])]))
    playing = player(engine, pool, state=state, limit=4000, seed=SEED, max_tool_calls=4)
    (trajectory,) = await play_trajectories(playing, [asked("p")], STEP, 1)
    assert [call.ran for call in trajectory.tool_calls] == [True, True]
    config = TrainConfig.model_validate(
        {
            "run": {"directory": directory, "steps": 9, "seed": SEED},
            "model": {"path": "none"},
            "data": {"train": "none"},
            "rollout": {"tools": {"python": {"name": "python", "interpreter_state": state}}},
        }
    )
    (directory / "trajectories").mkdir(parents=True)
    write_config(directory, config)
    rows = [encode_trajectory(TrajectoryRecord(STEP, trajectory, grade(), 0.0))]
    (directory / "trajectories" / f"step_{STEP:06d}.jsonl").write_bytes(lines(rows))
    return indexed(directory)


@pytest_asyncio.fixture(params=list(CALLS))
async def played(
    request: pytest.FixtureRequest, tmp_path: Path, pool: SandboxPool
) -> AsyncIterator[tuple[Replayer, Place]]:
    reader = await played_run(tmp_path / "run", pool, request.param)
    replayer = Replayer(reader.target)
    yield replayer, find_place(reader, f"step_{STEP:06d}", 0)
    await replayer.close()
    reader.close()


async def test_calls_are_reproduced_in_any_order(played: tuple[Replayer, Place]) -> None:
    replayer, place = played
    for number in (1, 0, 1):
        result = await replayer.replay(place, number)
        assert (result["reproduced"], result["differences"], result["note"]) == (True, [], "")


async def test_experiment_has_the_state_before_its_call_and_changes_nothing(played: tuple[Replayer, Place]) -> None:
    replayer, place = played
    before = place.read()
    result = await replayer.experiment(place, 1, "print(sorted(set(globals()) & {'x', 'y'}), 6 * 7)")
    state = place.reader.target.directory.joinpath("config.toml").read_text(encoding="utf-8")
    names = {"episode": "['x']", "replay": "['y']"}.get(
        state.partition('interpreter_state = "')[2].partition('"')[0], "[]"
    )
    assert (result["experiment"], result["outcome"]["text"]) == (True, f"{names} 42\n")
    assert place.read() == before
    assert (await replayer.replay(place, 1))["reproduced"]


async def changed(tmp_path: Path, **changes: Any) -> tuple[Replayer, Place]:
    """A file of one trajectory without a configuration, whose call prints 1, with a changed record of the call."""
    written = row()
    written["tool_calls"][0] |= changes
    path = tmp_path / "file.jsonl"
    path.write_text(json.dumps(written) + "\n", encoding="utf-8")
    return Replayer(Target("file", path)), find_place(indexed(path, "file"), "file", 0)


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({}, []),
        ({"text": "2\n"}, ["text"]),
        ({"status": "error", "error": "ValueError"}, ["status", "error"]),
        ({"details": {"stdout": "1\n", "stderr": "warning"}}, ["stderr"]),
        ({"details": {"stdout": "1\n", "cpu_seconds": 99.0}}, []),
        ({"arguments": {"code": "print('a' * 20000)"}, "text": "a" * 16384}, []),  # as far as the record has it
    ],
)
async def test_changed_parts_of_a_record_are_named(
    tmp_path: Path, changes: dict[str, Any], differing: list[str]
) -> None:
    replayer, place = await changed(tmp_path, **changes)
    result = await replayer.replay(place, 0)
    await replayer.close()
    assert [part["name"] for part in result["differences"]] == differing
    assert (result["reproduced"], "without the configuration" in result["note"]) == (not differing, True)


@pytest.mark.parametrize(
    ("number", "changes", "message"),
    [
        (3, {}, "has 1 calls"),
        (0, {"tool": None, "arguments": None}, "nothing ran"),
        (0, {"tool": "bash", "arguments": {"command": "ls"}}, "'bash' takes no code of Python"),
    ],
)
async def test_call_that_cannot_be_run_again_is_an_error(
    tmp_path: Path, number: int, changes: dict[str, Any], message: str
) -> None:
    replayer, place = await changed(tmp_path, **changes)
    with pytest.raises(CannotReplayError, match=message):
        await replayer.replay(place, number)


async def test_call_of_another_tool_is_not_run(tmp_path: Path, pool: SandboxPool) -> None:
    reader = await played_run(tmp_path / "run", pool, "fresh")
    path = reader.target.path_of(f"step_{STEP:06d}")
    written = json.loads(path.read_bytes())
    written["tool_calls"][0]["tool"] = "browser"
    path.write_bytes(lines([written]))
    with closing(indexed(reader.target.path)) as again, pytest.raises(CannotReplayError, match="'browser' is not the"):
        await Replayer(again.target).replay(find_place(again, f"step_{STEP:06d}", 0), 0)
