"""Prompts of the reference model that differ from the policy's, for self-distillation. No torch."""

from typing import Protocol

from torl.base.guard import InvalidResultError, describe
from torl.base.types import Problem, ScoredGroup, ScoredTrajectory


class TeacherPrompt(Protocol):
    '''A teacher prompt: a function of a trajectory, its group and its own options that returns another problem.

    The problem is put into the run's template, and the reference model computes the log-probabilities of the response
    after this prompt. None keeps the policy's prompt, and so does a prompt that leaves no room for the response: both
    together may have the length of the longest sample, which is the longest prompt (`data.max_prompt_tokens`, or that
    of `evaluation` if it is larger) with `rollout.max_response_tokens`.

    Example: show the reference model a correct response of the group.

        from dataclasses import replace

        from torl.base.types import Problem, ScoredGroup, ScoredTrajectory

        def with_solution(
            member: ScoredTrajectory, group: ScoredGroup, hint: str = "A correct solution:"
        ) -> Problem | None:
            """The problem with another member's correct response, if there is one."""
            solutions = [each for each in group.members if each.grade.correct and each is not member]
            if not solutions:
                return None
            problem = group.prompt.problem
            return replace(problem, question=f"{problem.question}\\n{hint}\\n{solutions[0].trajectory.text}")

        [algorithm.kl.prompt]
        name = "my_package.distillation:with_solution"
        hint = "Someone solved it like this:"
    '''

    def __call__(self, member: ScoredTrajectory, group: ScoredGroup, /) -> Problem | None:
        """Return the problem of the reference model's prompt, with the options already bound."""
        ...


def check_teacher_prompt(problem: object, member: ScoredTrajectory, group: ScoredGroup) -> None:
    """Check the result of a teacher prompt.

    Raises:
        InvalidResultError: `problem` is neither a `Problem` nor None.
    """
    if problem is not None and not isinstance(problem, Problem):
        raise InvalidResultError(f"expected Problem or None, got {describe(problem)}")
