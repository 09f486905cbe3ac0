"""The problems of the steps of a run, some of which are played ahead of the learner.

A checkpoint contains the sampler after everything that was drawn from it, with the accuracies of the steps before the
checkpoint only, and the problems that the steps ahead had taken. A run that resumes there plays these problems first,
so that it neither misses nor repeats one in an epoch.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torl.base.errors import CheckpointError
from torl.base.guard import calling
from torl.base.types import Prompt
from torl.components.data import Sampler
from torl.components.text.prompts import PromptStream
from torl.learner.checkpoint.directory import read_controller_state


class StepProblems:
    """The source of the problems of each step. Call `end` after each step, in order.

    Args:
        sampler: Source of prompts.
        ahead: Prompts that are taken before those of the sampler.
        max_staleness: How many steps may be played ahead of the learner.
    """

    def __init__(self, sampler: Sampler, ahead: Sequence[Prompt] = (), max_staleness: int = 0) -> None:
        self._sampler = sampler
        self._waiting = list(ahead)
        self._plays_ahead = max_staleness > 0
        self._taken: list[tuple[int, str]] = []  # step and problem, of steps that have not ended
        self._held: dict[int, dict[str, float]] = {}  # accuracies of steps that have not ended
        self.position = self._state()
        """State, as in a checkpoint, for a run that resumes after the last step that has ended."""

    @property
    def epoch(self) -> int:
        """Index of the sampler's current epoch."""
        return self._sampler.epoch

    def __len__(self) -> int:
        """Return the maximum number of prompts of one `take`."""
        return len(self._sampler)

    def take(self, step: int, count: int) -> list[Prompt]:
        """Return the next `count` distinct prompts for a step."""
        if len({prompt.problem.id for prompt in self._waiting}) < count:
            with calling("sampler", self._sampler, "take", count):
                self._waiting += self._sampler.take(count)
        taken: dict[str, Prompt] = {}
        waiting: list[Prompt] = []
        for prompt in self._waiting:
            if len(taken) < count and prompt.problem.id not in taken:
                taken[prompt.problem.id] = prompt
            else:
                waiting.append(prompt)
        self._waiting = waiting
        self._taken += [(step, name) for name in taken]
        return list(taken.values())

    def record_accuracies(self, step: int, accuracies: Mapping[str, float]) -> None:
        """Record the accuracies of a round of a step: at once, or when the step ends if steps are played ahead.

        A checkpoint before the step must not contain them, because a run that resumes there records them again.
        """
        if self._plays_ahead:
            self._held.setdefault(step, {}).update(accuracies)
        else:
            self._record(accuracies)

    def end(self, step: int) -> None:
        """Count a step as played, so that a run that resumes from now on does not play it again."""
        if step in self._held:
            self._record(self._held.pop(step))
        self._taken = [each for each in self._taken if each[0] != step]
        self.position = self._state()

    def _record(self, accuracies: Mapping[str, float]) -> None:
        with calling("sampler", self._sampler, "record_accuracies", accuracies):
            self._sampler.record_accuracies(accuracies)

    def _state(self) -> Mapping[str, Any]:
        ahead = [name for _, name in self._taken] + [prompt.problem.id for prompt in self._waiting]
        with calling("sampler", self._sampler, "state_dict"):
            # A copy: a checkpoint is written while the next steps change a sampler's own lists.
            state = json.loads(json.dumps(self._sampler.state_dict()))
        return {"sampler": state, "ahead": ahead}


def read_ahead(checkpoint: Path, prompts: PromptStream) -> tuple[Prompt, ...]:
    """Return the prompts that the steps ahead of a checkpoint had taken, in their order.

    Raises:
        CheckpointError: The checkpoint cannot be read, or was written with other problems.
    """
    names: list[str] = read_controller_state(checkpoint).get("ahead", [])
    found = prompts.find(set(names))
    if len(found) < len(set(names)):
        raise CheckpointError("the checkpoint was written with other problems than data.train contains now")
    return tuple(found[name] for name in names)
