"""Run recorded calls again in the sandbox, and edited code as an experiment that is not part of the record."""

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torl.apps.view.detail import shorten
from torl.apps.view.errors import CannotReplayError
from torl.apps.view.rows import Place
from torl.apps.view.sources import TRAINING, Target
from torl.component import RunContext
from torl.config import LearningConfig, TrainConfig
from torl.errors import ConfigError
from torl.options import Choice
from torl.records.rows import MAX_OUTPUT_CHARACTERS
from torl.records.run_directory import read_configs
from torl.rollout.calls import clean_outcome
from torl.seeds import derive_seed
from torl.tools import BaseTool, PythonTool, ToolSession, make_tool
from torl.trust import reading
from torl.types import Outcome, OutcomeStatus

_COMPARED_DETAILS: Final = ("stdout", "stderr", "traceback")
_WITHOUT_CONFIG: Final = "without the configuration of the run: the sandbox's default limits, random seed 0"


class Replayer:
    """Runs calls of a target in its own sandbox with one worker. Calls run one at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._lock = asyncio.Lock()
        self._tools: list[tuple[object, BaseTool]] = []
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    async def replay(self, place: Place, number: int) -> dict[str, Any]:
        """Run a call again, after the calls of its tool before it, and compare the outcome with the record.

        Args:
            place: The trajectory.
            number: Number of the call in the response.

        Raises:
            CannotReplayError: The call cannot be run again.
            TorlError: The record cannot be read, or the sandbox has failed.
        """
        row = await asyncio.to_thread(place.read_row)
        call = _call(row, number)
        async with self._lock:
            session, note = await self._session_before(place, row, number)
            outcome = clean_outcome(await session.call(call["arguments"]))
        differences = compare_outcomes(call, outcome)
        return {
            "experiment": False,
            "outcome": outcome_json(outcome),
            "reproduced": not differences,
            "differences": differences,
            "note": note if not differences else "; ".join(filter(None, (note, _timeout_note(call, outcome)))),
        }

    async def experiment(self, place: Place, number: int, code: str) -> dict[str, Any]:
        """Run other code instead of a call's, after the calls before it. Nothing is recorded.

        Raises:
            CannotReplayError: The call cannot be run again.
            TorlError: The record cannot be read, or the sandbox has failed.
        """
        row = await asyncio.to_thread(place.read_row)
        _call(row, number)
        async with self._lock:
            session, note = await self._session_before(place, row, number)
            outcome = clean_outcome(await session.call({"code": code}))
        return {"experiment": True, "outcome": outcome_json(outcome), "note": note}

    async def close(self) -> None:
        """Stop the sandboxes."""
        async with self._lock:
            tools, self._tools = self._tools, []
            for _, tool in tools:
                await tool.close()
            if self._directory is not None:
                self._directory.cleanup()
                self._directory = None

    async def _session_before(self, place: Place, row: Mapping[str, Any], number: int) -> tuple[ToolSession, str]:
        """Return a session of the call's tool in the state before the call, and a note on its settings."""
        name = row["tool_calls"][number]["tool"]
        tool, seed, note = await self._tool(place, row, name)
        session = tool.session(seed)
        if session.fork() is not session:  # a state that earlier calls have left
            for call in row["tool_calls"][:number]:
                if call["tool"] == name:
                    await session.call(call["arguments"])
        return session, note

    async def _tool(self, place: Place, row: Mapping[str, Any], name: str) -> tuple[BaseTool, int, str]:
        if row.get("branches") or row.get("program_answer") is not None:
            raise CannotReplayError("an agent program made the calls: the record does not have their order")
        if not self._target.is_run:
            if any("code" not in (call["arguments"] or {}) for call in row["tool_calls"] if call["tool"] == name):
                raise CannotReplayError(f"the tool {name!r} takes no code of Python: only torl's sandbox runs calls")
            return await self._started(None, PythonTool), 0, _WITHOUT_CONFIG
        with reading(trust=self._target.trust):
            return await self._tool_of_run(place, row, name)

    async def _tool_of_run(self, place: Place, row: Mapping[str, Any], name: str) -> tuple[BaseTool, int, str]:
        config = await asyncio.to_thread(self._config_at, int(row["step"]))
        choice = config.rollout.tools.get(name)
        if choice is None or not (isinstance(choice.target, type) and issubclass(choice.target, PythonTool)):
            raise CannotReplayError(f"the tool {name!r} is not the sandbox of torl: its calls may not be repeatable")
        if isinstance(config, TrainConfig) and config.ablation.shuffle_observations:
            raise CannotReplayError("ablation.shuffle_observations: the model saw outcomes of other calls")
        options = choice.options.model_copy(update={"workers": 1})
        limited: Choice[BaseTool] = replace(choice, options=options)
        tool = await self._started(options, lambda: make_tool(name, limited))
        seed = derive_seed(config.run.seed, _batch(place, row), row["problem"])
        return tool, seed, ""

    async def _started(self, key: object, make: Any) -> BaseTool:
        found = next((tool for known, tool in self._tools if known == key), None)
        if found is not None:
            return found
        self._directory = self._directory or tempfile.TemporaryDirectory(prefix="torl-view-")
        tool: BaseTool = make()
        try:
            await tool.start(RunContext(directory=Path(self._directory.name)))
        except BaseException:
            await tool.close()
            raise
        self._tools.append((key, tool))
        return tool

    def _config_at(self, step: int) -> LearningConfig:
        try:
            configs = read_configs(self._target.directory)
        except ConfigError as error:
            raise CannotReplayError(f"the configuration cannot be read: {error}") from error
        return next((config for first, config in reversed(configs) if first <= step), configs[0][1])


def _call(row: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    calls = row["tool_calls"]
    if not 0 <= number < len(calls):
        raise CannotReplayError(f"the response has {len(calls)} calls, expected call {number}")
    call: Mapping[str, Any] = calls[number]
    if call["tool"] is None:
        raise CannotReplayError("nothing ran for this call: it was malformed, or no call was left")
    return call


def _batch(place: Place, row: Mapping[str, Any]) -> int | str:
    """Return the batch that seeded the episode: the step in training, the name of the play in an evaluation."""
    batch = str(row["group"]).removesuffix(f"/{row['problem']}")
    set_name = place.columns.sets.get(int(place.columns["set"][place.position]))
    return int(batch) if set_name == TRAINING and batch.isdigit() else batch


def compare_outcomes(call: Mapping[str, Any], outcome: Outcome) -> list[dict[str, Any]]:
    """Return the parts of a recorded call and of a new outcome that differ: name, recorded and new text.

    Times and memory are not compared. Texts are compared as far as the record has them.
    """
    pairs = [("status", call["status"], outcome.status.value), ("error", call.get("error"), outcome.error)]
    pairs.append(("text", call.get("text", ""), outcome.text))
    recorded = call.get("details") or {}
    pairs += [(name, recorded[name], outcome.details.get(name)) for name in _COMPARED_DETAILS if name in recorded]
    return [
        {"name": name, "recorded": shorten(before), "now": shorten(_truncated(now))}
        for name, before, now in pairs
        if before != _truncated(now)
    ]


def _truncated(value: Any) -> Any:
    return value[:MAX_OUTPUT_CHARACTERS] if isinstance(value, str) else value


def _timeout_note(call: Mapping[str, Any], outcome: Outcome) -> str:
    timed_out = OutcomeStatus.TIMEOUT in (call["status"], outcome.status)
    return "a timeout depends on the machine and its load" if timed_out else ""


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON with cut texts."""
    details: Any = shorten(outcome.details)
    return {"status": outcome.status.value, "text": shorten(outcome.text), "error": outcome.error, "details": details}
