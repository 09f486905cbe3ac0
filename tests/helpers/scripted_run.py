"""A player of the steps of a run, with an engine that samples by a script and no learner."""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builders import asked, printed
from scripted_engine import ENCODER, VOCABULARY, ScriptedEngine
from torl.base.types import Outcome
from torl.components.data import PromptSampler
from torl.components.rewards import Reward, make_reward
from torl.components.tools import Tool
from torl.recipes.torl import ToRLFormat
from torl.rollout.episode import EpisodePlayer
from torl.rollout.slots import EpisodeSlots
from torl.run.config import TrainConfig
from torl.run.display.console import Console
from torl.training.experience import Experience
from torl.training.step import StepPlayer
from torl.training.step_problems import StepProblems


@dataclass
class ScriptedTool(Tool):
    """Answers its nth call with `outcome(n)`, counted from 0; `broken` is what its check raises."""

    description = "Answers as it is told."
    parameters: Mapping[str, Any] = field(default_factory=dict)  # type: ignore[misc]
    outcome: Callable[[int], Outcome] = lambda _: printed()
    broken: Exception | None = None
    calls: int = 0

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        """The next outcome."""
        self.calls += 1
        return self.outcome(self.calls - 1)

    async def check(self) -> None:
        """Raise the error of the script, if any."""
        if self.broken is not None:
            raise self.broken


class ScriptedRun:
    """A run of problems "p0", "p1", ... in steps of four groups of two, all of whose answers are 1.

    The model solves the odd samples of the problems for which `solvable(number)` holds, and none of the others.
    `version` is the policy that the engine samples with. `settings` are sections of the configuration, merged into its
    own.
    """

    def __init__(
        self,
        directory: Path,
        solvable: Callable[[int], object] = lambda _: True,
        *,
        problems: int = 40,
        steps: int = 6,
        staleness: int = 0,
        slots: int = 1024,
        graded_by: Reward | None = None,
        **settings: Mapping[str, Any],
    ) -> None:
        own: dict[str, Any] = {
            "run": {"directory": directory, "steps": steps},
            "model": {"path": ""},
            "data": {"train": ""},
            "rollout": {
                "prompts_per_step": 4,
                "samples_per_prompt": 2,
                "max_response_tokens": 40,
                "max_staleness": staleness,
            },
            "algorithm": {"importance_correction": "tis"},
        }
        merged = {name: {**own.get(name, {}), **settings.get(name, {})} for name in {*own, *settings}}
        self.solvable = solvable
        self.config = TrainConfig.model_validate(merged)
        self.version = 0
        self.engine = ScriptedEngine(self._response, version=lambda _: self.version)
        self.prompts = [asked(f"p{number}", token_ids=(5, 6)) for number in range(problems)]
        self.sampler = PromptSampler(self.prompts, 0)
        self.tool = ScriptedTool()
        self.player = EpisodePlayer(
            engine=self.engine,
            tools={"python": self.tool},
            vocabulary=VOCABULARY,
            encoder=ENCODER,
            format=ToRLFormat(),
            settings=self.config.rollout,
            slots=EpisodeSlots(slots),
        )
        self.reward = graded_by or make_reward(self.config.reward)  # equal texts and integers need no process
        self.said = io.StringIO()
        parts = (self.player, self.reward, Console(self.said))
        self.step_player = StepPlayer(self.config, StepProblems(self.sampler), *parts)
        self.experience = Experience(self.config, self.sampler, *parts)

    def order(self, count: int) -> list[str]:
        """The first problems of a run from its beginning."""
        return [prompt.problem.id for prompt in PromptSampler(self.prompts, 0).take(count)]

    def publish(self, version: int) -> None:
        """As after the learner's update: new weights in the engine."""
        self.version = version
        self.experience.advance(version)

    def steps_begun(self) -> set[int]:
        """The steps of which any episode has been asked for."""
        return {int(request.split("/")[0]) for request in self.engine.requests}

    def _response(self, request_id: str) -> list[int]:
        found = re.fullmatch(r"[\w-]+/p(\d+)/(\d+)/0", request_id)
        assert found is not None
        number, sample = map(int, found.groups())
        solved = self.solvable(number) and sample % 2
        return ENCODER.encode("\\boxed{1}" if solved else "\\boxed{2}" + " and so on" * 8)
