"""The check of prompts: questions against the problem source, and token ids against the template."""

from collections.abc import Sequence
from dataclasses import replace

from torl.base.errors import CheckpointError, TorlError
from torl.base.seeds import derive_seed
from torl.base.types import Problem, Prompt, ScoredGroup, Trajectory
from torl.components.text.sources import digest_problems, is_digest
from torl.learner.checkpoint.directory import checkpoint_path, checkpoint_steps, read_controller_state
from torl.rollout.model_directory import ModelDirectory
from torl.run.config import LearningConfig, TrainConfig
from torl.run.records.rows import TrajectoryRecord
from torl_lab.audit.checks import Check, order_mismatch, place_of
from torl_lab.audit.history import RunHistory
from torl_lab.audit.naive.samplers import naive_variant
from torl_lab.audit.problem_sets import ProblemSet

_MAX_SHOWN = 60


class PromptAudit:
    """The check of the prompts of a run."""

    def __init__(self, check: Check, config: LearningConfig, model: ModelDirectory, history: RunHistory) -> None:
        """Prepare the problem sets of a configuration; they are read on demand."""
        self._check, self._config, self._model, self._history = check, config, model, history
        data, evaluation = config.data, config.evaluation
        self.training = None
        if isinstance(config, TrainConfig):
            self.training = ProblemSet(check, "data.train", config.data.train, data, model, None)
        self.evaluations = {
            name: ProblemSet(check, f"data.evaluation.{name}", choice, data, model, evaluation.max_problems)
            for name, choice in data.evaluation.items()
        }
        self._compared: set[str] = set()
        partner = "agent program" if config.rollout.agent else "environment" if config.rollout.environment else None
        self._compares_tokens = partner is None
        if partner is not None:
            check.add_note(f"the {partner} may set prompts: their tokens are not compared")

    def check_step(self, records: Sequence[TrajectoryRecord]) -> None:
        """Check the prompts of a step."""
        problems = self.training
        assert problems is not None  # of a training run
        if any(_differs(record, problems) for record in records):
            self.source_has_changed()
        prompts = problems.prompts(record.trajectory.prompt.problem for record in records)
        for record in records:
            self._compare(record, problems, self._drawn(record, prompts), self._config.data.max_prompt_tokens)

    def source_has_changed(self) -> bool:
        """Whether the training problems cannot be read, or are others than those that the run had read."""
        assert self.training is not None  # of a training run
        return self._has_changed(self.training)

    def _has_changed(self, problems: ProblemSet) -> bool:
        """Whether a set cannot be read, or is another than the one that the run had read, which a note says."""
        if problems.available and problems.name not in self._compared:
            self._compared.add(problems.name)
            recorded = self._history.source_of(self._config, problems.name)
            if recorded is None:
                self._check.add_note(f"an earlier version did not record {problems.name}")
            try:
                if recorded is not None:
                    changed = problems.differ_from(recorded)
                else:
                    changed = problems is self.training and self._has_other_problems()
                if changed:
                    problems.drop("has changed since the run")
            except TorlError as error:
                problems.drop(f"cannot be read: {error}")
        return not problems.available

    def evaluated(self, name: str) -> tuple[list[str], int] | None:
        """Return the problems of an evaluation in their order, and the number of problems with too long prompts."""
        self._has_changed(self.evaluations[name])
        return self.evaluations[name].fitting(self._config.evaluation.longest_prompt(self._config.data))

    def check_evaluation(
        self, name: str, records: Sequence[TrajectoryRecord], place: str, *, failed: int, too_long: int
    ) -> None:
        """Check the prompts of an evaluation's file, in the order of the problem set.

        Problems of failed episodes may be missing. Records do not have problems with too long prompts.
        """
        problems = self.evaluations[name]
        recorded = self._history.source_of(self._config, problems.name)
        if records and recorded is not None and not failed and not too_long:
            played = digest_problems(dict.fromkeys(record.trajectory.prompt.problem for record in records))
            same = is_digest({each: played[each] for each in ("rows", "sha256")}, recorded)
            self._check.add(same, f"{place}: expected the problems of {problems.name} that the start had read")
        prompts = problems.prompts(record.trajectory.prompt.problem for record in records)
        longest = self._config.evaluation.longest_prompt(self._config.data)
        for record in records:
            self._compare(record, problems, prompts.get(record.trajectory.prompt.problem), longest)
        if (known := self.evaluated(name)) is not None:
            found = list(dict.fromkeys(record.trajectory.prompt.problem.id for record in records))
            expected = [each for each in known[0] if not failed or each in found]
            if found != expected:
                self._check.add(False, f"{place}: {order_mismatch(expected, found, problems.name)}")

    def with_metadata(self, groups: Sequence[ScoredGroup], problems: ProblemSet) -> tuple[list[ScoredGroup], bool]:
        """Return groups with their problems' metadata and prompts' variants, and whether all problems were found."""
        rendered = problems.prompts(group.prompt.problem for group in groups)
        found: list[ScoredGroup] = []
        complete = True
        for group in groups:
            source = problems.problem(group.prompt.problem.id)
            prompt = rendered.get(group.prompt.problem)
            if source is None or prompt is None:
                complete = False
                found.append(group)
                continue
            members = []
            for member in group.members:
                trajectory, variant = member.trajectory, None
                if problems is self.training and self._compares_tokens:
                    step = int(trajectory.group_id.partition("/")[0])
                    variant = self._variant(prompt, step, trajectory.sample_index).variant
                elif self._compares_tokens:
                    variant = prompt.variant
                changed = _with_problem(trajectory, source, variant)
                members.append(replace(member, trajectory=changed))
            found.append(ScoredGroup(members[0].trajectory.prompt, tuple(members)))
        return found, complete

    def _drawn(self, record: TrajectoryRecord, prompts: dict[Problem, Prompt]) -> Prompt | None:
        """Return the variant of a prompt that a training episode drew."""
        trajectory = record.trajectory
        prompt = prompts.get(trajectory.prompt.problem)
        return None if prompt is None else self._variant(prompt, record.step, trajectory.sample_index)

    def _variant(self, prompt: Prompt, step: int, sample: int) -> Prompt:
        seed = derive_seed(self._config.run.seed, step, prompt.problem.id, sample, "prompt variant")
        return naive_variant(prompt, seed)

    def _compare(self, record: TrajectoryRecord, problems: ProblemSet, prompt: Prompt | None, longest: int) -> None:
        recorded, place = record.trajectory.prompt.problem, place_of(record)
        length = len(record.trajectory.prompt.token_ids)
        if self._compares_tokens and length > longest:
            self._check.expect(place, f"a prompt of at most {longest} tokens (max_prompt_tokens)", f"{length} tokens")
            return
        source = problems.problem(recorded.id)
        if problems.available and source is None:
            self._check.expect(place, f"a problem of {problems.name}", f"the unknown problem {recorded.id!r}")
        elif source is not None and source.question != recorded.question:
            self._check.expect(place, f"the question {_short(source.question)}", _short(recorded.question))
        elif source is not None and source.answer != recorded.answer:
            self._check.expect(place, f"the reference answer {_short(source.answer)}", _short(recorded.answer))
        elif prompt is not None and self._compares_tokens:
            self._check.add(*_compare_tokens(place, prompt.token_ids, record.trajectory.prompt.token_ids))
        elif source is not None:
            self._check.add(True, place)

    def _has_other_problems(self) -> bool:
        """Whether the newest checkpoint was written with other problems than the source contains now."""
        assert isinstance(self._config, TrainConfig)
        data = self._config.data
        for step in reversed(checkpoint_steps(self._history.directory)):
            try:
                state = read_controller_state(checkpoint_path(self._history.directory, step))["sampler"]
                sampler = data.sampler.make(self._model.prompts(data.train, data), self._config.run.seed)
                sampler.load_state_dict(state)
            except CheckpointError as error:
                if "other problems" in str(error):
                    return True
            except (TorlError, LookupError, TypeError):
                continue
            else:
                return False
        return False


def _differs(record: TrajectoryRecord, problems: ProblemSet) -> bool:
    """Whether the source, if it can be read, has another problem under the recorded id, or none."""
    recorded = record.trajectory.prompt.problem
    if not problems.available:
        return False
    source = problems.problem(recorded.id)
    return source is None or (source.question, source.answer) != (recorded.question, recorded.answer)


def _with_problem(trajectory: Trajectory, problem: Problem, variant: str | None) -> Trajectory:
    """Return a trajectory with the problem as its source has it, but its own prompt tokens."""
    branches = tuple(_with_problem(branch, problem, variant) for branch in trajectory.branches)
    return replace(trajectory, prompt=replace(trajectory.prompt, problem=problem, variant=variant), branches=branches)


def _compare_tokens(place: str, expected: Sequence[int], found: Sequence[int]) -> tuple[bool, str]:
    first = next((index for index, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), None)
    if first is None:
        return len(expected) == len(found), f"{place}: expected {len(expected)} prompt tokens, found {len(found)}"
    return False, f"{place}: expected prompt token {expected[first]} at {first}, found {found[first]}"


def _short(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")
