"""How the losses of tokens become the loss of a batch: a weight for each trajectory, from the *global* batch. No torch.

The loss is the sum over all tokens of weight * loss. The weights are those of the whole batch of an optimizer step,
so they do not depend on how it is cut into micro-batches or ranks; ranks that *average* their gradients multiply by
their number. A trajectory without sampled tokens in the loss does not count as one, and its weight is 0. The
trajectories of one episode count as one, with the tokens of all of them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from torl.options import PositiveInt


class Aggregation(Protocol):
    '''What the loss of each sampled token of a trajectory is multiplied by: a function of counts, then of its options.

    A whole one, by which a long trajectory counts for more than a short one, but not in proportion:

        import numpy as np

        from torl.options import PositiveFraction

        def by_power_of_length(sampled_tokens_N: np.ndarray, power: PositiveFraction = 0.5) -> np.ndarray:
            """Each trajectory has the weight of its length to this power, shared by its tokens."""
            lengths_N = np.maximum(sampled_tokens_N, 1).astype(np.float64)
            shares_N = np.where(sampled_tokens_N > 0, lengths_N**power, 0.0)
            return shares_N / (max(1.0, shares_N.sum()) * lengths_N)

        [algorithm.aggregation]
        name = "my_package.weights:by_power_of_length"
        power = 0.25
    '''

    def __call__(self, sampled_tokens_N: npt.NDArray[np.int64], /) -> npt.NDArray[np.float64]:
        """The weights of the trajectories of a batch, shape (N,), once the options are bound."""
        ...


def by_token(sampled_tokens_N: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """1 / all sampled tokens of the batch: every token counts alike (DAPO, equation 12)."""
    tokens_N, present_N = _present(sampled_tokens_N)
    return np.where(present_N, 1 / max(1.0, tokens_N.sum()), 0.0)


def by_sequence(sampled_tokens_N: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """1 / (trajectories * the trajectory's own tokens): the mean over trajectories of token means (GRPO, GSPO)."""
    tokens_N, present_N = _present(sampled_tokens_N)
    return np.where(present_N, 1 / (max(1, present_N.sum()) * np.maximum(tokens_N, 1)), 0.0)


def by_fixed_length(sampled_tokens_N: npt.ArrayLike, length: PositiveInt) -> npt.NDArray[np.float64]:
    """1 / (trajectories * `length`): no length is favored (Dr. GRPO, section 3.1).

    Args:
        sampled_tokens_N: in the loss, for each trajectory.
        length: What the sum over tokens is divided by instead of their number.
    """
    _, present_N = _present(sampled_tokens_N)
    return np.where(present_N, 1 / (max(1, present_N.sum()) * length), 0.0)


AGGREGATIONS: Mapping[str, Callable[..., npt.NDArray[np.float64]]] = MappingProxyType(
    {"token": by_token, "sequence": by_sequence, "fixed": by_fixed_length}
)
"""The aggregations that a configuration knows by name."""


def _present(sampled_tokens_N: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    tokens_N = np.asarray(sampled_tokens_N, dtype=np.float64)
    return tokens_N, tokens_N > 0
