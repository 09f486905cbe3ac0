"""The problems of a run: read and rendered again as prompts, and drawn again in the order of its sampler.

The audit's own sampler gives the order of torl's samplers. The run's is called a second time for its position, which
checkpoints have, and for the order of a sampler that is not torl's.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from torl.base.errors import NotTrustedError, TorlError
from torl.base.types import Problem, Prompt
from torl.components.data import PromptSampler, Sampler, StreamSampler
from torl.components.text.prompts import PromptStream
from torl.components.text.sources import digest_problems, is_digest
from torl.rollout.grading import ProblemsById
from torl.rollout.model_directory import ModelDirectory
from torl.run.config import ProblemChoice, PromptConfig, RolloutConfig, TrainConfig
from torl.run.records.rows import TrajectoryRecord
from torl_lab.audit.batch import LearnedBatch
from torl_lab.audit.checks import Check, order_mismatch
from torl_lab.audit.naive import location_of
from torl_lab.audit.naive.samplers import NAIVE_SAMPLERS, NaiveStream
from torl_lab.audit.naive.selection import naive_next_round


class ProblemSet(ProblemsById):
    """The prompts of a problem source, read as far as the records need them and rendered again."""

    def __init__(
        self,
        check: Check,
        name: str,
        choice: ProblemChoice,
        config: PromptConfig,
        model: ModelDirectory,
        limit: int | None,
    ) -> None:
        """Prepare `limit` problems of the source `name`. Notes on prompts that cannot be compared go to `check`."""
        self.name = name
        self._check, self._config, self._model, self._choice = check, config, model, choice
        self._rendered: dict[Problem, Prompt | None] = {}
        self._fitting: dict[int, tuple[list[str], int] | None] = {}
        super().__init__(choice, limit)

    def drop(self, reason: str) -> None:
        """Compare the prompts with the recorded questions alone from now on."""
        super().drop(reason)
        self._rendered.clear()
        self._check.add_note(f"{self.name} {reason}; questions are taken from the records")

    def differ_from(self, recorded: Mapping[str, Any]) -> bool:
        """Whether the source has others than the problems that a run had read (`SourceDigest.entry`).

        Raises:
            TorlError: The problems cannot be read.
        """
        count = recorded.get("rows")
        is_count = isinstance(count, int) and count >= 0
        read = None if recorded.get("ended") else count
        return not is_count or not is_digest(digest_problems(self._choice.bind()(), read), recorded)

    def fitting(self, max_prompt_tokens: int) -> tuple[list[str], int] | None:
        """Return the ids of the problems whose prompts fit, and the number of the others; None if that is unknown."""
        if max_prompt_tokens not in self._fitting:
            self._fitting[max_prompt_tokens] = self._find_fitting(max_prompt_tokens)
        return self._fitting[max_prompt_tokens] if self.available else None

    def prompts(self, recorded: Iterable[Problem]) -> dict[Problem, Prompt]:
        """Return the prompt of each recorded problem, rendered again, if that is possible.

        A recorded problem is replaced by the problem of the source with its id.
        """
        problems = list(dict.fromkeys(recorded))
        missing = [problem for problem in problems if problem not in self._rendered]
        if missing:
            self._rendered |= dict.fromkeys(missing)
            sources = [self.problem(problem.id) or problem for problem in missing]
            tokenizer, template = self._model.tokenizer, self._config.template.bind()
            try:
                stream = PromptStream(lambda: sources, tokenizer, template, sys.maxsize, self._model.tool_schemas)
                self._rendered |= zip(missing, list(stream), strict=True)
            except TorlError as error:
                self._check.add_note(f"prompts of {self.name} cannot be rendered: {error}")
        return {problem: prompt for problem in problems if (prompt := self._rendered.get(problem)) is not None}

    def _find_fitting(self, max_prompt_tokens: int) -> tuple[list[str], int] | None:
        self._read_until(None)
        tokenizer, template, tools = self._model.tokenizer, self._config.template.bind(), self._model.tool_schemas
        try:
            stream = PromptStream(self._problems.values, tokenizer, template, max_prompt_tokens, tools)
            ids = [prompt.problem.id for prompt in stream]
        except TorlError as error:
            self._check.add_note(f"prompts of {self.name} cannot be rendered: {error}")
            return None
        return ids, len(self._problems) - len(ids)


_SOURCE = "the sampler (data.sampler, run.seed)"
_IGNORE_ACCURACIES = (PromptSampler.record_accuracies, StreamSampler.record_accuracies)


class ProblemOrder:
    """The problems of each step, drawn again. Call `open` for each configuration, then `check_step` for its steps."""

    def __init__(self, check: Check) -> None:
        """Count the steps in `check`."""
        self._check = check
        self._sampler: Sampler | None = None
        self._naive: Any = None  # of `NAIVE_SAMPLERS`; None for a sampler that is not torl's
        self._rollout: RolloutConfig | None = None
        self.positions: dict[int, Any] = {}
        """State of the sampler at the start of each step, as in a checkpoint, and after the last one."""
        self.problems: dict[int, Sequence[str]] = {}
        """Ids of the problems of each step that has drawn once, and has played all of them."""

    def open(
        self, config: TrainConfig, prompts: PromptStream, step: int, source_has_changed: Callable[[], bool]
    ) -> None:
        """Make the sampler of a configuration, which continues that of the last one, unless the order is unknown.

        `source_has_changed` is asked if no sampler can be made.
        """
        before, self._rollout = self._rollout, config.rollout
        if step > 0 and self._sampler is None:
            return
        if before is not None and before.max_staleness and _divides_otherwise(before, config):
            self.drop("a resumed run divided the problems of the steps that had been played ahead in another way")
            return
        choice, seed = config.data.sampler, config.run.seed
        formula = NAIVE_SAMPLERS.get(location_of(choice.target))
        try:
            # Prompts are rendered once, unless the sampler is for files that exceed memory.
            read = prompts if formula in (None, NaiveStream) else list(prompts)
            sampler: Sampler = choice.make(read, seed)
            if self._sampler is not None:
                sampler.load_state_dict(self._sampler.state_dict())
            naive = None if formula is None else formula(read, seed, **choice.options.model_dump())
        except TorlError as error:
            if not isinstance(error, NotTrustedError) and not source_has_changed():
                self._check.add(False, f"the problems of step {step} cannot be drawn again: {error}")
            self.drop(str(error))
            return
        if naive is None:
            self._check.add_note(f"{choice.name} has no second implementation: its order is that of a second call")
        elif self._naive is not None:
            naive.resume(self._naive)
        self._sampler, self._naive = sampler, naive
        uses_accuracies = getattr(type(sampler), "record_accuracies", None) not in _IGNORE_ACCURACIES
        if config.rollout.max_staleness and (config.selection.dynamic_sampling or uses_accuracies):
            self.drop("it depends on the time at which accuracies were known (rollout.max_staleness)")
        self._keep_position(step)

    @property
    def epoch(self) -> int | None:
        """Epoch after the last step that was checked; None if the order is unknown."""
        sampler = self._naive or self._sampler
        return None if sampler is None else int(sampler.epoch)

    def drop(self, reason: str) -> None:
        """Leave the order of later steps unchecked."""
        self._sampler = self._naive = None
        self._check.add_note(f"the order of problems was not checked: {reason}")

    def check_step(self, batch: LearnedBatch, *, failed: int, source_has_changed: Callable[[], bool]) -> None:
        """Draw the problems of a step again and compare. Whole groups of failed episodes may be missing.

        `source_has_changed` is asked before a mismatch.
        """
        step, is_dynamic = batch.step, batch.config.selection.dynamic_sampling
        found = [members[0].trajectory.prompt.problem.id for members in batch.groups.values()]
        if found and not failed and not is_dynamic:
            self.problems[step] = found
        if self._sampler is None:
            return
        if is_dynamic and (failed or not found):
            self.drop(f"the rounds of step {step} are unknown")
            return
        expected = self._draw(self._sampler, batch)
        if failed:
            expected = [name for name in expected if name in found]
        if found and found != expected and source_has_changed():
            self.drop("data.train has changed since the run")
            return
        self._keep_position(step + 1)
        if found:
            self._check.add(found == expected, f"step {step}: {order_mismatch(expected, found, _SOURCE)}")

    def _draw(self, sampler: Sampler, batch: LearnedBatch) -> list[str]:
        """Return the ids of a step's problems in the order in which it plays them."""
        config, wanted = batch.config, batch.config.rollout.prompts_per_step
        by_id = {members[0].trajectory.prompt.problem.id: members for members in batch.groups.values()}
        names: dict[str, Sequence[TrajectoryRecord] | None] = {}
        count, rounds = wanted, 0
        while True:
            drawn = [prompt.problem.id for prompt in sampler.take(count)]
            if self._naive is not None:
                drawn = self._naive.take(count)
            new = {name: by_id.get(name) for name in drawn if name not in names}
            accuracies = {
                name: fmean(each.grade.correct for each in records) for name, records in new.items() if records
            }
            for each in (sampler, self._naive):
                if each is not None:
                    each.record_accuracies(accuracies)
            names |= new
            rounds += 1
            if not config.selection.dynamic_sampling or None in new.values():
                return list(names)
            chosen = replace(batch, records=[each for records in names.values() for each in records or ()]).selection
            if not chosen.missing or rounds == config.selection.max_rounds or len(names) == len(sampler):
                return list(names)
            count = min(naive_next_round(wanted, chosen.kept, len(names)), len(sampler))

    def _keep_position(self, step: int) -> None:
        if self._sampler is not None:
            self.positions[step] = json.loads(json.dumps(self._sampler.state_dict()))


def _divides_otherwise(before: RolloutConfig, config: TrainConfig) -> bool:
    """Whether steps may draw other numbers of problems than the steps before them."""
    return before.prompts_per_step != config.rollout.prompts_per_step or config.selection.dynamic_sampling
