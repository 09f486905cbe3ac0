"""Run recorded calls again in the sandbox, in the state that the calls before them left, and compare the outcomes."""

import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torl.base.component import RunContext
from torl.base.options import Choice
from torl.base.types import Outcome
from torl.components.tools import BaseTool, PythonTool, ToolSession, make_tool
from torl.run.config import LearningConfig
from torl.run.records.row_types import MAX_OUTPUT_CHARACTERS

_COMPARED_DETAILS: Final = ("stdout", "stderr", "traceback")


def sandbox_of(config: LearningConfig, name: str) -> Choice[BaseTool] | None:
    """Return the choice of a tool whose calls run in torl's sandbox; None for others, which may not be repeatable."""
    choice = config.rollout.tools.get(name)
    is_sandbox = choice is not None and isinstance(choice.target, type) and issubclass(choice.target, PythonTool)
    return choice if is_sandbox else None


class CallSandboxes(AsyncExitStack):
    """Sandboxes with one worker, each started once: a start takes as long as dozens of calls."""

    def __init__(self) -> None:
        super().__init__()
        self._started: list[tuple[str, Choice[BaseTool] | None, BaseTool]] = []

    async def session_before(
        self, row: Mapping[str, Any], number: int, seed: int, choice: Choice[BaseTool] | None
    ) -> ToolSession:
        """Return a session of a call's tool, after the calls of the tool before it.

        Args:
            row: Row of the trajectory.
            number: Number of the call in the response.
            seed: Seed of the session.
            choice: Tool of the run (`sandbox_of`). None for the default limits.

        Raises:
            TorlError: The sandbox cannot be started, or has failed.
        """
        name = row["tool_calls"][number]["tool"]
        session = (await self._tool(name, choice)).session(seed)
        if session.fork() is not session:  # a state that earlier calls have left
            for call in row["tool_calls"][:number]:
                if call["tool"] == name:
                    await session.call(call["arguments"])
        return session

    async def _tool(self, name: str, choice: Choice[BaseTool] | None) -> BaseTool:
        for known, options, tool in self._started:
            if (known, options) == (name, choice):
                return tool
        scratch = self.enter_context(tempfile.TemporaryDirectory(prefix="torl-calls-"))
        if choice is None:
            tool = PythonTool()
        else:
            tool = make_tool(name, replace(choice, options=choice.options.model_copy(update={"workers": 1})))
        try:
            await tool.start(RunContext(directory=Path(scratch)))
        except BaseException:
            await tool.close()
            raise
        self.push_async_callback(tool.close)
        self._started.append((name, choice, tool))
        return tool


def compare_outcomes(call: Mapping[str, Any], outcome: Outcome) -> dict[str, tuple[Any, Any]]:
    """Return the parts of a recorded call and of a new outcome that differ, by name: as recorded, and as they are now.

    Times and memory are not compared. Texts are compared as far as the record has them.
    """
    pairs = {"status": (call["status"], outcome.status.value), "error": (call.get("error"), outcome.error)}
    pairs["text"] = call.get("text", ""), outcome.text
    recorded = call.get("details") or {}
    pairs |= {name: (recorded[name], outcome.details.get(name)) for name in _COMPARED_DETAILS if name in recorded}
    cut = {
        name: (before, now[:MAX_OUTPUT_CHARACTERS] if isinstance(now, str) else now)
        for name, (before, now) in pairs.items()
    }
    return {name: (before, now) for name, (before, now) in cut.items() if before != now}
