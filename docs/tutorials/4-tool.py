# %% [markdown]
# # 4. Your own tool
#
# A tool is a class with a description for the model, a schema of its arguments, and `call`. The demo's format knows one
# tool, called `python`; we replace it by one that gives a hint after an error. It runs the code in torl's sandbox.

# %%
from pathlib import Path

import torl

Path("my_tools.py").write_text(
    """
from collections.abc import Mapping
from typing import Any

import torl
from torl import Outcome, OutcomeStatus


class PythonWithHints(torl.Tool):
    description = "Runs Python code and returns what it prints, or its error with a hint."
    parameters = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}

    def __init__(self, hint: str = "check the spelling", cpu_seconds: float = 2.0) -> None:
        self.hint = hint
        self.cpu_seconds = cpu_seconds
        self.hints = 0

    async def start(self, context: torl.RunContext) -> None:
        self.pool = torl.SandboxPool(1, cpu_seconds=self.cpu_seconds)

    async def close(self) -> None:
        self.pool.close()

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        execution = await self.pool.run_async(arguments["code"])
        if execution.ok:
            return Outcome(OutcomeStatus.OK, execution.stdout)
        self.hints += 1
        return Outcome(execution.status, f"{execution.exception_line} ({self.hint})", execution.exception_type)

    def metrics(self) -> Mapping[str, float]:
        return {"hints": self.hints}
""",
    encoding="utf-8",
)

# %% [markdown]
# ## In a conversation with the model
#
# The section `[rollout.tools.python]` names the class; its other keys are the parameters of `__init__`.

# %%
tool = {"name": "my_tools:PythonWithHints", "hint": "is the name defined?"}
with torl.Policy("torl:demo/base_model", extends="demo", rollout={"tools": {"python": tool}}) as policy:
    groups = policy.sample("torl:demo/problems/heldout.jsonl", samples_per_problem=1)

trajectories = [member.trajectory for group in groups for member in group.members]
calls = [call for trajectory in trajectories for call in trajectory.tool_calls]
failed = [call for call in calls if not call.outcome.ok]
print(len(trajectories), "responses,", len(calls), "calls,", len(failed), "failed")

# %%
print(next(each.text for each in trajectories if any(not call.outcome.ok for call in each.tool_calls)))

# %% [markdown]
# ## In training
#
# The same section of a TOML file. `metrics` of the tool are logged as `tool/<tool>/<count>`.

# %%
run = torl.train(
    "demo",
    run={"directory": "runs/hints", "steps": 2},
    data={"evaluation": {}},
    rollout={"tools": {"python": tool}},
)
print(run.metrics["tool/python/hints"])

# %% [markdown]
# An exception of a tool is a failure of the host: its episode is dropped and counted. A mistake of the model is an
# outcome, as above. Models trained for chat call tools by any name, of a function, a class or an MCP server
# ([tools](../tools.md), [chat models](../chat-models.md)). Next: [the sandbox](5-sandbox.ipynb).
