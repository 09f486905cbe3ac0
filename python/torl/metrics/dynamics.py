"""Training dynamics of a set of trajectories and their grades (ToRL, figure 5; ZeroTIR, table 3).

Pure functions: the same trajectories give the same numbers, in a run, in an evaluation and in an audit. Means
over responses weigh every response alike; ratios of blocks and runs weigh every block and run alike.
"""

import builtins
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from torl.metrics import names
from torl.metrics.blocks import written_blocks
from torl.reward.answers import find_answer
from torl.types import FinishReason, Grade, ToolCall, Trajectory

# Models define exceptions of their own; what is not Python's is counted together, so that names stay few.
_PYTHON_EXCEPTIONS = frozenset(
    name for name, member in vars(builtins).items() if isinstance(member, type) and issubclass(member, BaseException)
)
OTHER_EXCEPTION = "other"


def training_dynamics(trajectories: Sequence[Trajectory], grades: Sequence[Grade]) -> dict[str, float]:
    """Every metric of `names` that trajectories and grades define, by name.

    Args:
        trajectories: those of one step, or of one evaluation; of any number of groups.
        grades: one for each, in the same order.

    Raises:
        ValueError: there is none, or the numbers differ.
    """
    if not trajectories or len(trajectories) != len(grades):
        raise ValueError(f"{len(trajectories)} trajectories and {len(grades)} grades")
    return {
        **_reward_metrics(trajectories, grades),
        **_block_metrics(trajectories),
        **_run_metrics(trajectories, grades),
        **_response_metrics(trajectories),
    }


def _reward_metrics(trajectories: Sequence[Trajectory], grades: Sequence[Grade]) -> dict[str, float]:
    groups: defaultdict[str, list[Grade]] = defaultdict(list)
    for trajectory, grade in zip(trajectories, grades, strict=True):
        groups[trajectory.group].append(grade)
    compared = [group for group in groups.values() if len(group) > 1]
    uniform = sum(len({grade.reward for grade in group}) == 1 for group in compared)
    solved = sum(any(grade.correct for grade in group) for group in groups.values())
    return {
        names.REWARD_MEAN: sum(grade.reward for grade in grades) / len(grades),
        names.ACCURACY: sum(grade.correct for grade in grades) / len(grades),
        names.SOLVED: solved / len(groups),
        names.ANSWERED: sum(grade.answer is not None for grade in grades) / len(grades),
        names.GRADER_TIMEOUTS: sum(grade.failure == "timeout" for grade in grades),
        names.GRADER_ERRORS: sum(grade.failure == "error" for grade in grades),
        **_ratio(names.UNIFORM_GROUPS, uniform, len(compared)),
    }


def _block_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    with_code = blocks = before_answer = ran = 0
    for trajectory in trajectories:
        written = written_blocks(trajectory.sampled_text, len(trajectory.tool_calls), trajectory.format)
        answer = find_answer(trajectory.sampled_text)
        with_code += bool(written)
        blocks += len(written)
        ran += sum(call.ran for call in trajectory.tool_calls)
        if answer is not None:
            before_answer += sum(block.start < answer.start for block in written)
    return {
        names.CODE_RATIO: with_code / len(trajectories),
        names.CODE_BLOCKS_PER_RESPONSE: blocks / len(trajectories),
        **_ratio(names.EXECUTED_RATIO, ran, blocks),
        **_ratio(names.BEFORE_ANSWER_RATIO, before_answer, blocks),
    }


def _run_metrics(trajectories: Sequence[Trajectory], grades: Sequence[Grade]) -> dict[str, float]:
    runs: list[tuple[ToolCall, bool]] = []  # with whether the response is correct
    for trajectory, grade in zip(trajectories, grades, strict=True):
        runs += [(call, grade.correct) for call in trajectory.tool_calls if call.ran]
    calls = sum(len(trajectory.tool_calls) for trajectory in trajectories)
    of_correct = [call.outcome.ok for call, correct in runs if correct]
    of_incorrect = [call.outcome.ok for call, correct in runs if not correct]
    waited = sum(call.wait_seconds for trajectory in trajectories for call in trajectory.tool_calls)
    statuses = Counter(call.outcome.status.value for call, _ in runs)
    errors = Counter(_exception_name(call) for call, _ in runs if call.outcome.exception_type is not None)
    return {
        names.CALLS_PER_TRAJECTORY: calls / len(trajectories),
        **_ratio(names.CALLS_WITHOUT_CODE, calls - len(runs), calls),
        **_ratio(names.PASS_RATIO, sum(of_correct) + sum(of_incorrect), len(runs)),
        **_ratio(names.PASS_RATIO_CORRECT, sum(of_correct), len(of_correct)),
        **_ratio(names.PASS_RATIO_INCORRECT, sum(of_incorrect), len(of_incorrect)),
        **_ratio(names.WAIT_SHARE, waited, sum(trajectory.seconds for trajectory in trajectories)),
        **{names.status_share(status): count / len(runs) for status, count in sorted(statuses.items())},
        **{names.error_share(error): count / len(runs) for error, count in sorted(errors.items())},
    }


def _response_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    count = len(trajectories)
    tokens = sum(map(len, trajectories))
    sampled = sum(int(trajectory.loss_mask_T.sum()) for trajectory in trajectories)
    truncated = sum(trajectory.finish_reason is FinishReason.LENGTH for trajectory in trajectories)
    return {
        names.RESPONSE_TOKENS: tokens / count,
        names.SAMPLED_TOKENS: sampled / count,
        names.OBSERVED_TOKENS: (tokens - sampled) / count,
        names.LONGEST_RESPONSE: max(map(len, trajectories)),
        names.TURNS: sum(len(trajectory.turns) for trajectory in trajectories) / count,
        names.TRUNCATED: truncated / count,
        names.EPISODE_SECONDS: sum(trajectory.seconds for trajectory in trajectories) / count,
        **_ratio(
            names.CACHED_SHARE,
            sum(turn.cached_tokens for trajectory in trajectories for turn in trajectory.turns[1:]),
            sum(
                len(trajectory.prompt.token_ids) + turn.start
                for trajectory in trajectories
                for turn in trajectory.turns[1:]
            ),
        ),
    }


def staleness(trajectories: Sequence[Trajectory], step: int) -> dict[str, float]:
    """How old the policies are that sampled a step's tokens, for the policy of version `step` that learns from them."""
    versions = [trajectory.policy_versions_T[trajectory.loss_mask_T] for trajectory in trajectories]
    ages = step - np.concatenate(versions)
    return {
        names.STALENESS_MEAN: float(ages.mean()) if len(ages) else 0.0,
        names.STALENESS_MAX: float(ages.max(initial=0)),
        names.SPANNING: sum(len(np.unique(each)) > 1 for each in versions) / len(versions),
    }


def _exception_name(call: ToolCall) -> str:
    name = call.outcome.exception_type
    return name if name in _PYTHON_EXCEPTIONS else OTHER_EXCEPTION


def _ratio(name: str, numerator: float, denominator: float) -> dict[str, float]:
    return {name: numerator / denominator} if denominator else {}
