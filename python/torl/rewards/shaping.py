"""What a reward may add to the answer itself: small functions of trajectories. Axis `_N`: trajectories."""

import numpy as np
import numpy.typing as npt

from torl.text.answer_tags import AnswerFormat, has_format
from torl.types import FinishReason, Trajectory


def ran_failing_code(trajectory: Trajectory) -> bool:
    """Whether a call of it ran and did not end well; a call with nothing to run is none (ToRL, section 3.3)."""
    return any(call.ran and not call.outcome.ok for call in trajectory.tool_calls)


def has_valid_format(trajectory: Trajectory, format: AnswerFormat) -> bool:
    """Whether the response ended by itself, or at a stop string, in this format (`torl.text.answer_tags`)."""
    return trajectory.finish_reason is FinishReason.STOP and has_format(trajectory.answer_text, format)


def malformed_turns(trajectory: Trajectory) -> list[bool]:
    """Of each turn whether it asks for a call that cannot be made, or is the first and asks for none (GTPO)."""
    calls = [trajectory.calls_in(turn) for turn in trajectory.turns]
    return [not (own or number) or not all(call.ran for call in own) for number, own in enumerate(calls)]


def overlong_punishment(lengths_N: npt.ArrayLike, limit: int, buffer: int) -> npt.NDArray[np.float64]:
    """DAPO's soft punishment of long responses (equation 13), shape (N,), between -1 and 0.

    None up to `limit - buffer` tokens, then linear to -1 at the limit, which no response exceeds.

    Args:
        lengths_N: tokens of each response, sampled and observed.
        limit: most tokens a response may have.
        buffer: in how many tokens before the limit the punishment grows; 0 punishes nobody.
    """
    if buffer == 0:
        return np.zeros_like(np.asarray(lengths_N, dtype=np.float64))
    beyond_N = np.asarray(lengths_N, dtype=np.float64) - (limit - buffer)
    return -np.clip(beyond_N / buffer, 0, 1)
