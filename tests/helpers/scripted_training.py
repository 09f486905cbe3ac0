"""Whole training runs in one process: all of it is real but the engine, which samples by a script, and the ranks.

The script makes what metrics measure: runs that fail and are repaired, answers before and after code, invented results,
cut responses. The ranks compute the real objective of a policy that does not move.
"""

import asyncio
import contextlib
import io
import json
import random
import shutil
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch

from cli import ROOT
from scripted_engine import ScriptedEngine
from torl.base.types import Float32Array, Grade, Group, OutcomeStatus, SampledTurn, ScoredTrajectory, Trajectory
from torl.components.engine import EngineSetup
from torl.components.rewards import Reward
from torl.components.text.answers import find_answer
from torl.components.text.tokenizer import PlainTextEncoder, load_tokenizer
from torl.components.tools import PythonTool
from torl.components.weights.rendezvous import Rendezvous
from torl.learner.checkpoint.directory import open_checkpoint
from torl.learner.learner import Learner
from torl.learner.messages import Annotate, LearnerSetup, PolicyUpdate, UpdatePolicy
from torl.learner.objective import RowTensors, policy_objective
from torl.learner.rows import PackedRow, TokenRecorder
from torl.run.config import TrainConfig
from torl.run.display.console import Console
from torl.training.policy_versions import write_model_files
from torl.training.run import train
from torl_sandbox import Execution

BASE_MODEL = ROOT / "python" / "torl" / "demo" / "base_model"
SETTINGS: dict[str, Any] = {
    "model": {"path": str(BASE_MODEL)},
    "engine": {"name": "scripted_training:TrainedEngine"},
    "reward": {"name": "scripted_training:ScriptedReward"},
    "data": {"max_prompt_tokens": 200},
    "rollout": {
        "prompts_per_step": 4,
        "samples_per_prompt": 4,
        "max_response_tokens": 300,
        "max_tool_calls": 2,
        "speculative_execution": False,
        "format": "torl",
        "tools": {"python": {"name": "scripted_training:ScriptedPython"}},
    },
    "run": {"steps": 3, "token_groups": 2, "group_metrics_by": "level", "trackers": {}},
    "learner": {"dtype": "float32", "learning_rate": 1e-3},
    "evaluation": {"samples_per_problem": 2, "greedy": True, "every_steps": 0},
    "checkpoint": {"every_steps": 0},
    "health": {"mode": "off"},
}


def train_by_script(directory: Path, settings: Mapping[str, Mapping[str, Any]]) -> Path:
    """Train a run with further settings, and return its directory. `ScriptedLearner` must stand for the learner."""
    directory.mkdir()
    own = {**SETTINGS, "data": {**SETTINGS["data"], "train": str(_problems(directory, "train", 14))}}
    own["data"]["evaluation"] = {"heldout": str(_problems(directory, "heldout", 5))}
    own["run"] = {**SETTINGS["run"], "directory": str(directory / "run")}
    merged = {name: {**own.get(name, {}), **settings.get(name, {})} for name in {*own, *settings}}
    asyncio.run(train(TrainConfig.model_validate(merged), Console(io.StringIO())))
    return directory / "run"


def _problems(directory: Path, name: str, count: int) -> Path:
    """Write problems whose answers are 10, 11, ...; the prompt of the last one is too long."""
    path = directory / f"{name}.jsonl"
    rows = [
        {
            "id": f"{name}-{number}",
            "problem": f"What is {number} + 10?" + " Think twice." * 60 * (number == count - 1),
            "answer": str(number + 10),
            "level": number % 3,
            "tool": "python" if number % 2 else "search",
            "pass_rate": number / count,
        }
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- the engine -------------------------------------------------------------------------------------------------------


def _call(code: str) -> str:
    return f"```python\n{code}\n```\n```output"


RIGHT, WRONG = "\\boxed{RIGHT}", "\\boxed{WRONG}"
RESPONSES: Sequence[Sequence[str]] = (
    ("Let us see.\n" + _call("x = RIGHT\nprint(x)"), f"So {RIGHT}."),
    (f"It is {RIGHT}.\n" + _call("print(RIGHT)"), RIGHT),
    (f"It is {WRONG}.\n" + _call("print(RIGHT)"), RIGHT),
    (f"It is {WRONG}.\n" + _call("print(RIGHT)"), f"Still {WRONG}"),
    (_call("print(undefined)"), _call("# again\nx = RIGHT\n\nprint(abs(x))"), RIGHT),
    (_call("print(RIGHT)"), _call("print( RIGHT )"), WRONG),
    (WRONG,),
    (RIGHT,),
    ("Let me think about it for a while before I write any code at all. " * 3 + "\n" + _call("print(RIGHT)"), RIGHT),
    (_call("print(1)"), _call("print(2)"), f"```output\nRIGHT\n```\nSo {RIGHT}."),
    ("hm\n```output", WRONG),
    ("well\n```output", RIGHT),
    (f"Still {RIGHT}",),
    (_call("print(undefined)"), _call("print(RIGHT)"), WRONG),
    (_call("print(RIGHT)"), f"So {RIGHT}.\n```python\nprint(2)\n```\n"),
    ("```python\nx = 1\n```\n" + _call("print(RIGHT)"), _call("print(3)"), RIGHT),
    ("I do not know.",),
    ("on and on " * 200,),
    (_call("class Undone(Exception): pass\nraise Undone"), RIGHT),
    (f"```python\nprint(RIGHT)\n```\nIt is {RIGHT}.\n```python\nprint(2)\n```\n",),
)
"""Responses, turn by turn."""


def turn_text(name: str, version: int) -> str:
    """The text of a turn, "batch/problem/sample/turn"; each sample draws its response, in evaluations by the policy."""
    episode, _, turn = name.rpartition("/")
    if not episode:  # of the probe of new weights
        return WRONG
    batch, problem, _ = episode.split("/")
    number = int(problem.rpartition("-")[2])
    response = random.Random(episode if batch.isdigit() else f"{episode}/{version}").choice(RESPONSES)
    text = response[min(int(turn), len(response) - 1)]
    return text.replace("RIGHT", str(number + 10)).replace("WRONG", str(number + 11))


class TrainedEngine(ScriptedEngine):
    """Samples by the script. With `stale`, some turns are of the policy before the one that learns from them."""

    def __init__(self, setup: EngineSetup, stale: bool = False) -> None:
        encoder = PlainTextEncoder(load_tokenizer(setup.model), setup.vocabulary)
        self._stale, self._current = stale, 0
        super().__init__(
            lambda name: [*encoder.encode(turn_text(name, self._current)), setup.stop_token_ids[0]],
            version=self._version_of,
            vocabulary=setup.vocabulary,
            stop_token_ids=frozenset(setup.stop_token_ids),
        )

    async def sample(self, request: Any, on_block: Any = None) -> SampledTurn:
        """Sample a turn, half of whose prefix was in the cache."""
        return replace(await super().sample(request, on_block), cached_tokens=len(request.prefix) // 2)

    async def receive_weights(self, rendezvous: Rendezvous, policy_version: int, *, first: int = 0) -> None:
        """Hold a new version of the policy."""
        self._current = policy_version

    def _version_of(self, name: str) -> int:
        batch, *places = name.split("/")
        if not batch.isdigit():  # of an evaluation, or of the probe of new weights
            return self._current
        return max(0, int(batch) - (self._stale and sum(int(each) for each in places[1:]) % 2))


# --- the tool and the reward ------------------------------------------------------------------------------------------


class _OwnPython:
    """Runs the script's code in this process."""

    async def run_async(self, code: str, *, seed: int = 0) -> Execution:
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(code, {})
        except Exception as error:
            kind, lines = type(error).__name__, traceback.format_exception(error)
            status, last = OutcomeStatus.ERROR, lines[-1].strip().removeprefix("builtins.")
            return Execution(status, printed.getvalue(), "", kind, last, "".join(lines), 0.0, 0.0, 0)
        return Execution(OutcomeStatus.OK, printed.getvalue(), "", None, None, None, 0.0, 0.0, 0)


class ScriptedPython(PythonTool):
    """The Python tool without a sandbox."""

    def __init__(self) -> None:
        super().__init__(interpreter=_OwnPython())


class ScriptedReward(Reward):
    """Rewards right and short responses, and with `turn_rewards` each turn with code; it gives up on some."""

    def __init__(self, turn_rewards: float = 0.0) -> None:
        self._turn_rewards = turn_rewards

    async def grade(self, group: Group) -> list[Grade]:
        return [self._grade(trajectory) for trajectory in group.trajectories]

    def _grade(self, trajectory: Trajectory) -> Grade:
        text = trajectory.sampled_text
        failure = {"hm": "timeout", "I ": "error"}.get(text[:2])
        box = find_answer(text)
        right = box is not None and failure is None and box.text == trajectory.prompt.problem.answer
        parts = {"answer": float(right), **({"short": 0.125} if len(trajectory.turns) == 1 else {})}
        turns = tuple(self._turn_rewards * bool(turn.blocks) for turn in trajectory.turns) if self._turn_rewards else ()
        said = None if box is None else box.text
        return Grade(sum(parts.values()), right, said, failure, parts, turns, valid_format="Still" not in text)


def is_short(member: ScoredTrajectory, below: int) -> bool:
    """A mask that torl does not know."""
    return len(member.trajectory) < below


# --- the learner ------------------------------------------------------------------------------------------------------


class _Ranks:
    """One rank, whose policy gives each token the engine's log-probability."""

    shares_prompts = False
    ranks = (None,)

    def __init__(self, setup: LearnerSetup) -> None:
        self._setup = setup

    async def call(self, requests: Sequence[Any]) -> list[Any]:
        (request,) = requests
        if isinstance(request, Annotate):
            return [{name: [_annotation(name, row) for row in request.rows] for name in request.annotations}]
        return [self._update(request) if isinstance(request, UpdatePolicy) else None]

    async def call_all(self, request: Any) -> list[Any]:
        return [{}]

    async def watch(self) -> None:
        await asyncio.Event().wait()

    async def shut_down(self) -> None: ...

    kill = shut_down

    def _update(self, request: UpdatePolicy) -> PolicyUpdate:
        algorithm, recorder = self._setup.at_step(request.step).algorithm, TokenRecorder(request.recorded)
        sums: dict[str, float] = {}
        loss, gap = 0.0, 0.0
        for row in request.rows:
            tensors = RowTensors(row, torch.device("cpu"))
            logprobs = tensors.rollout_logprob_K
            objective = policy_objective(logprobs, logprobs.abs(), tensors, algorithm)
            recorder.add(row, objective.tokens)
            loss += float(objective.loss)
            sums = {name: sums.get(name, 0.0) + float(each) for name, each in objective.sums.items()}
        metrics = {name: each / max(1, request.sampled_tokens) for name, each in sums.items()}
        own = {"loss": loss, "gradient_norm": 1.0, "changed_weights": 1.0, "logprob_gap_max": gap}
        return PolicyUpdate(metrics | own | {"learning_rate": self._setup.learner.learning_rate}, recorder.found)


def _annotation(name: str, row: PackedRow) -> Float32Array:
    return row.rollout_logprob_K * (2 if name == "ref_logprobs" else 1)


class ScriptedLearner(Learner):
    """A learner without processes. Its checkpoints have no weights; the model that it exports is the base model."""

    @classmethod
    async def start(cls, setup: LearnerSetup, **_: Any) -> Self:
        ranks: Any = _Ranks(setup)
        return cls(ranks, setup)

    async def open_channel(self, receivers: Any) -> Any:
        return None

    async def send_weights(self, rendezvous: Any, *, checksum: bool = False) -> Any:
        return None

    async def begin_checkpoint(self, directory: Path, controller_state: dict[str, Any]) -> "asyncio.Task[None]":
        async def write() -> None:
            with open_checkpoint(directory, controller_state, {}):
                pass

        return asyncio.create_task(write())

    async def export(self, directory: Path, stop_token_ids: Sequence[int] = ()) -> None:
        config = TrainConfig.model_validate(
            {**SETTINGS, "data": {"train": ""}, "run": {"directory": directory, "steps": 1}}
        )
        write_model_files(config, directory)
        shutil.copyfile(BASE_MODEL / "model.safetensors", directory / "model.safetensors")
