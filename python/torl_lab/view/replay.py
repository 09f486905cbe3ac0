"""Run recorded calls again in the sandbox, and edited code as an experiment that is not part of the record."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from torl.base.errors import ConfigError
from torl.base.seeds import derive_seed
from torl.base.trust import reading
from torl.base.types import Outcome, OutcomeStatus
from torl.components.tools import ToolSession
from torl.rollout.calls import clean_outcome
from torl.run.config import LearningConfig, TrainConfig
from torl.run.records.run_directory import read_configs
from torl_lab.replay.calls import CallSandboxes, compare_outcomes, sandbox_of
from torl_lab.view.detail import shorten
from torl_lab.view.requests import CannotReplayError
from torl_lab.view.rows import Place
from torl_lab.view.sources import TRAINING, Target

_WITHOUT_CONFIG: Final = "without the configuration of the run: the sandbox's default limits, random seed 0"


class Replayer:
    """Runs calls of a target in its own sandbox with one worker. Calls run one at a time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._lock = asyncio.Lock()
        self._sandboxes = CallSandboxes()

    async def replay(self, place: Place, number: int) -> dict[str, Any]:
        """Run a call again, after the calls of its tool before it, and compare the outcome with the record.

        Args:
            place: The trajectory.
            number: Number of the call in the response.

        Raises:
            CannotReplayError: The call cannot be run again.
            TorlError: The record cannot be read, or the sandbox has failed.
        """
        call, outcome, note = await self._run(place, number)
        differences = compare_outcomes(call, outcome)
        if differences and OutcomeStatus.TIMEOUT in (call["status"], outcome.status):
            note = "; ".join(filter(None, (note, "a timeout depends on the machine and its load")))
        return {
            "experiment": False,
            "outcome": outcome_json(outcome),
            "reproduced": not differences,
            "differences": [
                {"name": name, "recorded": shorten(recorded), "now": shorten(now)}
                for name, (recorded, now) in differences.items()
            ],
            "note": note,
        }

    async def experiment(self, place: Place, number: int, code: str) -> dict[str, Any]:
        """Run other code instead of a call's, after the calls before it. Nothing is recorded.

        Raises:
            CannotReplayError: The call cannot be run again.
            TorlError: The record cannot be read, or the sandbox has failed.
        """
        _, outcome, note = await self._run(place, number, {"code": code})
        return {"experiment": True, "outcome": outcome_json(outcome), "note": note}

    async def _run(
        self, place: Place, number: int, arguments: Mapping[str, Any] | None = None
    ) -> tuple[Mapping[str, Any], Outcome, str]:
        """Return a call, the outcome of a run of it or of other arguments, and a note on the settings."""
        row = await asyncio.to_thread(place.read_row)
        call = _call(row, number)
        async with self._lock:
            session, note = await self._session_before(place, row, number)
            return call, clean_outcome(await session.call(arguments or call["arguments"])), note

    async def close(self) -> None:
        """Stop the sandboxes."""
        async with self._lock:
            await self._sandboxes.aclose()

    async def _session_before(self, place: Place, row: Mapping[str, Any], number: int) -> tuple[ToolSession, str]:
        """Return a session of the call's tool in the state before the call, and a note on its settings."""
        name = row["tool_calls"][number]["tool"]
        if row.get("branches") or row.get("program_answer") is not None:
            raise CannotReplayError("an agent program made the calls: the record does not have their order")
        if not self._target.is_run:
            if any("code" not in (call["arguments"] or {}) for call in row["tool_calls"] if call["tool"] == name):
                raise CannotReplayError(f"the tool {name!r} takes no code of Python: only torl's sandbox runs calls")
            return await self._sandboxes.session_before(row, number, 0, None), _WITHOUT_CONFIG
        with reading(trust=self._target.trust):
            config = await asyncio.to_thread(self._config_at, int(row["step"]))
            choice = sandbox_of(config, name)
            if choice is None:
                raise CannotReplayError(
                    f"the tool {name!r} is not the sandbox of torl: its calls may not be repeatable"
                )
            if isinstance(config, TrainConfig) and config.ablation.shuffle == "observations":
                raise CannotReplayError("ablation.shuffle = 'observations': the model saw outcomes of other calls")
            seed = derive_seed(config.run.seed, _batch(place, row), row["problem"])
            return await self._sandboxes.session_before(row, number, seed, choice), ""

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
    set_name = place.columns.sets.get(place["set"])
    return int(batch) if set_name == TRAINING and batch.isdigit() else batch


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON with cut texts."""
    details: Any = shorten(outcome.details)
    return {"status": outcome.status.value, "text": shorten(outcome.text), "error": outcome.error, "details": details}
