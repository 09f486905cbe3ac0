"""Bugs of graders, and of the way of rewards to the batch."""

from dataclasses import replace
from typing import Any

from benchmarks.doctors.exhibits.catalog import exhibit
from torl.base.types import Grade, OutcomeStatus, ScoredGroup, Trajectory

_GRADE = "torl.components.rewards.math:MathReward._grade"
_LONG = 3  # digits from which the emulated parsers fail


def _right(self: Any, grade: Grade) -> Grade:
    return replace(grade, reward=self.options.correct, correct=True)


def _wrong(self: Any, grade: Grade) -> Grade:
    return replace(grade, reward=self.options.wrong, correct=False)


@exhibit(
    _GRADE,
    thread="huggingface/OpenEnv!1200",
    says="The return code of verification commands was never checked, so that every one counted as passed.",
    truth=("no-signal", "credit-without-answer", "verify:rewards"),
)
def passing_grader(original: Any) -> Any:
    """Pass every response."""

    async def grade(self: Any, trajectory: Trajectory) -> Grade:
        return _right(self, await original(self, trajectory))

    return grade


@exhibit(
    _GRADE,
    thread="verl-project/verl!7853",
    says="A wrapper caught the errors of failing code and exited with 0, so that a function that raises earned 1.0.",
    truth=("credit-without-answer", "verify:rewards"),
)
def rewarded_errors(original: Any) -> Any:
    """Count a response whose code failed as correct."""

    async def grade(self: Any, trajectory: Trajectory) -> Grade:
        found: Grade = await original(self, trajectory)
        failed = any(call.outcome.status is not OutcomeStatus.OK for call in trajectory.tool_calls)
        return _right(self, found) if failed else found

    return grade


@exhibit(
    _GRADE,
    thread="NVIDIA-NeMo/RL#431",
    says="The math environment gave 0 for every exception of the grader, as if the answer was wrong.",
    truth=("ungraded-answers", "verify:rewards"),
)
def errors_as_wrong(original: Any) -> Any:
    """Grade with a parser that raises for long numbers, and count the exception as a wrong answer."""

    async def grade(self: Any, trajectory: Trajectory) -> Grade:
        found: Grade = await original(self, trajectory)
        try:
            if found.answer is not None and len(found.answer) > _LONG:
                raise ValueError(found.answer)
        except ValueError:
            return _wrong(self, found)
        return found

    return grade


@exhibit(
    _GRADE,
    thread="huggingface/open-r1#215",
    says="The reward was 1 if the reference solution could not be parsed, whatever the response was.",
    truth=("credit-without-answer", "verify:rewards"),
)
def unread_references(original: Any) -> Any:
    """Grade with a parser that fails on long references, and pass their responses."""

    async def grade(self: Any, trajectory: Trajectory) -> Grade:
        found: Grade = await original(self, trajectory)
        return _right(self, found) if len(trajectory.prompt.problem.answer) > _LONG else found

    return grade


@exhibit(
    _GRADE,
    thread="Liuziyu77/Visual-RFT#176",
    says="An answer was right if it was a part of the reference, so that an empty one earned the full reward.",
    truth=("credit-without-answer", "verify:rewards"),
)
def substring_match(original: Any) -> Any:
    """Compare answers as substrings in both directions."""

    async def grade(self: Any, trajectory: Trajectory) -> Grade:
        found: Grade = await original(self, trajectory)
        answer, reference = found.answer or "", trajectory.prompt.problem.answer
        return _right(self, found) if answer in reference or reference in answer else found

    return grade


@exhibit(
    "torl.training.step:select_batch",
    thread="NVIDIA-NeMo/RL!3794",
    says="After groups without variance were dropped, rewards of all rows overwrote those of the remaining rows.",
    truth=("advantage-without-reward", "verify:advantages"),
)
def rewards_of_other_rows(original: Any) -> Any:
    """Give the remaining rows the rewards of the rows before the selection, in their order."""

    def select(groups: list[ScoredGroup], config: Any) -> Any:
        chosen = original(groups, config)
        rewards = iter([member.reward for group in groups for member in group.members])
        batch = tuple(
            replace(group, members=tuple(replace(member, reward=next(rewards)) for member in group.members))
            for group in chosen.batch
        )
        return replace(chosen, batch=batch)

    return select
