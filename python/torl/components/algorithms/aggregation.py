"""Aggregation of token losses into the loss of a batch: a weight for each trajectory of the *global* batch. No torch.

The loss is the sum over all sampled tokens of weight * token loss. Weights are computed for the global batch of an
optimizer step, so that the loss does not depend on micro-batches and ranks; ranks that *average* their gradients
multiply the loss by the number of ranks. A trajectory without sampled tokens in the loss is not counted, and has weight
0. The trajectories of an episode count as one, with the tokens of all of them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from torl.base.guard import InvalidResultError, describe
from torl.base.options import PositiveInt


class Aggregation(Protocol):
    '''An aggregation: a function of token counts and its own options that returns the weight of each token's loss.

    Example: an aggregation in which the weight of a trajectory grows with its length, but less than proportionally.

        import numpy as np

        from torl import PositiveFraction

        def by_power_of_length(sampled_tokens_N: np.ndarray, power: PositiveFraction = 0.5) -> np.ndarray:
            """length^(power - 1) for each token, normalized over the batch."""
            lengths_N = np.maximum(sampled_tokens_N, 1).astype(np.float64)
            weights_N = np.where(sampled_tokens_N > 0, lengths_N**power, 0.0)
            return weights_N / (max(1.0, weights_N.sum()) * lengths_N)

        [algorithm.aggregation]
        name = "my_package.weights:by_power_of_length"
        power = 0.25
    '''

    def __call__(self, sampled_tokens_N: npt.NDArray[np.int64], /) -> npt.NDArray[np.float64]:
        """Compute the weights of the trajectories of a batch, shape (N,), with the options already bound."""
        ...


def by_token(sampled_tokens_N: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """1 / (number of sampled tokens in the batch): all tokens have the same weight (DAPO, equation 12)."""
    tokens_N, present_N = _present(sampled_tokens_N)
    return np.where(present_N, 1 / max(1.0, tokens_N.sum()), 0.0)


def by_sequence(sampled_tokens_N: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """1 / (number of trajectories * length of the trajectory): mean over trajectories of token means (GRPO, GSPO)."""
    tokens_N, present_N = _present(sampled_tokens_N)
    return np.where(present_N, 1 / (max(1, present_N.sum()) * np.maximum(tokens_N, 1)), 0.0)


def by_fixed_length(sampled_tokens_N: npt.ArrayLike, length: PositiveInt) -> npt.NDArray[np.float64]:
    """1 / (number of trajectories * `length`): without a length bias (Dr. GRPO, section 3.1).

    Args:
        sampled_tokens_N: Number of sampled tokens of each trajectory.
        length: Constant by which the sum over a trajectory's tokens is divided instead of their number.
    """
    _, present_N = _present(sampled_tokens_N)
    return np.where(present_N, 1 / (max(1, present_N.sum()) * length), 0.0)


def check_weights(weights_N: object, sampled_tokens_N: npt.NDArray[np.int64]) -> None:
    """Check the result of an aggregation.

    Raises:
        InvalidResultError: `weights_N` is not an array with one finite number for each trajectory.
    """
    if not isinstance(weights_N, np.ndarray) or not np.issubdtype(weights_N.dtype, np.floating):
        raise InvalidResultError(f"expected an array of floats, got {describe(weights_N)}")
    if weights_N.shape != sampled_tokens_N.shape:
        raise InvalidResultError(f"expected weights of shape {sampled_tokens_N.shape}, got {weights_N.shape}")
    if not np.isfinite(weights_N).all():
        raise InvalidResultError("weights must be finite")


AGGREGATIONS: Mapping[str, Callable[..., npt.NDArray[np.float64]]] = MappingProxyType(
    {"token": by_token, "sequence": by_sequence, "fixed_length": by_fixed_length}
)
"""Built-in aggregations by their names in configurations."""


def _present(sampled_tokens_N: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    tokens_N = np.asarray(sampled_tokens_N, dtype=np.float64)
    return tokens_N, tokens_N > 0
