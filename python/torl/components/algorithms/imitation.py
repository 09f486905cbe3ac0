"""Imitation: weights of the cross-entropy of response tokens, in addition to the policy loss. No torch.

The loss of the imitated tokens is the sum of weight * -logprob over the *global* batch of an optimizer step, divided by
the number of imitated tokens. It does not depend on the numbers of sampled tokens, rows and ranks.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np

from torl.base.guard import InvalidResultError, describe
from torl.base.options import PositiveFloat
from torl.base.types import Float32Array, ScoredTrajectory


class Imitation(Protocol):
    '''An imitation: a function of a trajectory and its own options that returns a weight for each response token.

    Example: imitate the results of successful calls.

        import numpy as np

        from torl import PositiveFloat, ScoredTrajectory

        def results(member: ScoredTrajectory, weight: PositiveFloat = 0.05) -> np.ndarray:
            """`weight` on the observations of calls that succeeded."""
            weights_T = np.zeros(len(member.trajectory), np.float32)
            for call in member.trajectory.tool_calls:
                if call.outcome.ok:
                    weights_T[call.start : call.stop] = weight
            return weights_T

        [algorithm.imitation]
        name = "my_package.imitation:results"
        weight = 0.1
    '''

    def __call__(self, member: ScoredTrajectory, /) -> Float32Array:
        """Compute the weights, shape (T,), at least 0, with the options already bound. Zeros are not counted."""
        ...


def observations(member: ScoredTrajectory, weight: PositiveFloat = 0.1) -> Float32Array:
    """Imitate the observed tokens: the model learns to predict the replies of tools (ECHO, arXiv 2605.24517).

    Args:
        member: Trajectory.
        weight: Weight of the mean cross-entropy of observed tokens.
    """
    return np.where(member.trajectory.loss_mask_T, 0, weight).astype(np.float32)


def correct_responses(member: ScoredTrajectory, weight: PositiveFloat = 0.1) -> Float32Array:
    """Imitate the sampled tokens of correct responses (rejection sampling).

    Args:
        member: Trajectory.
        weight: Weight of the mean cross-entropy of these tokens.
    """
    return np.where(member.trajectory.loss_mask_T & member.grade.correct, weight, 0).astype(np.float32)


def check_imitation(weights_T: object, member: ScoredTrajectory) -> None:
    """Check the result of an imitation.

    Raises:
        InvalidResultError: `weights_T` is not an array with one finite number of at least 0 for each response token.
    """
    if not isinstance(weights_T, np.ndarray) or not np.issubdtype(weights_T.dtype, np.floating):
        raise InvalidResultError(f"expected an array of floats, got {describe(weights_T)}")
    if weights_T.shape != (len(member.trajectory),):
        raise InvalidResultError(f"expected weights of shape {(len(member.trajectory),)}, got {weights_T.shape}")
    if not np.isfinite(weights_T).all() or (weights_T < 0).any():
        raise InvalidResultError("weights must be finite and at least 0")


IMITATIONS: Mapping[str, Callable[..., Float32Array]] = MappingProxyType(
    {"observations": observations, "correct_responses": correct_responses}
)
"""Built-in imitations by their names in configurations."""
