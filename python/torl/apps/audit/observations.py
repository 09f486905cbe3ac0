"""What answered turns: the outcomes of calls, what an environment said, and how a response may end with them."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from torl.apps.audit.rules import MismatchError, ReplayContext
from torl.types import FinishReason, StopReason, ToolCall, Trajectory, Turn, UserMessage


def answered_turns(trajectory: Trajectory) -> Iterator[tuple[list[ToolCall], list[UserMessage]]]:
    """For each turn that was answered its calls, and what the environment said."""
    everything: list[ToolCall | UserMessage] = [*trajectory.tool_calls, *trajectory.user_messages]
    for _, grouped in groupby(sorted(everything, key=lambda each: each.start), key=lambda each: each.start):
        together = list(grouped)
        yield (
            [each for each in together if isinstance(each, ToolCall)],
            [each for each in together if isinstance(each, UserMessage)],
        )


def check_environment_reply(turn: Turn, calls: Sequence[ToolCall], *, closed: bool, rules: ReplayContext) -> None:
    """Raise `MismatchError` where no environment may have said something to the turn.

    Args:
        turn: before it.
        calls: of the turn, that were answered.
        closed: whether the turn ended with an end token.
        rules: of the run.
    """
    if rules.rollout.environment is None:
        raise MismatchError("an environment said something, and the run has none")
    if not calls and (turn.stop_reason is StopReason.CALL or not closed):
        raise MismatchError("the environment answered a message that calls a tool, or that is not closed")


def check_end(trajectory: Trajectory, turns: int, rules: ReplayContext) -> None:
    """Raise `MismatchError` where a response may not end with what was put in last, behind so many turns."""
    reason, rollout = trajectory.finish_reason, rules.rollout
    if reason is FinishReason.ENVIRONMENT:
        if rollout.environment is None:
            raise MismatchError("an environment ended it, and the run has none")
    elif reason is FinishReason.MAX_TURNS:
        if turns != rollout.max_turns:
            raise MismatchError(f"it ended after {turns} turns, and the run allows {rollout.max_turns}")
    elif reason is not FinishReason.LENGTH or len(trajectory) < rollout.max_response_tokens:
        raise MismatchError("no turn follows the last observation, though the limit was not reached")
