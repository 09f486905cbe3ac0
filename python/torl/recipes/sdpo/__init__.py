"""SDPO and OPSD: the policy after another prompt, which shows a solution or an error, is its own teacher."""

from dataclasses import replace

from torl import Problem, ScoredGroup, ScoredTrajectory

_MAX_ERROR = 500  # characters


def with_feedback(
    member: ScoredTrajectory,
    group: ScoredGroup,
    solution: str = "A correct solution of this problem:",
    error: str = "An earlier attempt failed with:",
) -> Problem | None:
    """Show the teacher another member's correct response, and the last error of this one (SDPO, arXiv 2601.20802).

    Args:
        member: Response whose tokens the teacher judges.
        group: Its group.
        solution: Line before the correct response.
        error: Line before the error.

    Returns:
        The problem with what there is to show; None if there is nothing.
    """
    right = next((each for each in group.members if each.grade.correct and each is not member), None)
    errors = [call.outcome.text for call in member.trajectory.tool_calls if not call.outcome.ok]
    shown = [group.prompt.problem.question]
    if right is not None:
        shown += [solution, right.trajectory.text]
    if errors and not member.grade.correct:
        shown += [error, errors[-1][-_MAX_ERROR:]]
    return replace(group.prompt.problem, question="\n".join(shown)) if len(shown) > 1 else None


def with_answer(member: ScoredTrajectory, group: ScoredGroup, hint: str = "The answer is {answer}.") -> Problem:
    """Show the teacher the reference answer (OPSD, arXiv 2601.19897, which shows a demonstration).

    Args:
        member: Response whose tokens the teacher judges.
        group: Its group.
        hint: Text after the question, with the answer in place of "{answer}".
    """
    problem = group.prompt.problem
    return replace(problem, question=f"{problem.question}\n{hint.replace('{answer}', ' or '.join(problem.answers))}")
