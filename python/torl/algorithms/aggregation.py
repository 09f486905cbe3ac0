"""How the losses of tokens become the loss of a batch: a weight for each trajectory, from the *global* batch. No torch.

The loss is the sum over all tokens of weight * loss. The weights are those of the whole batch of an optimizer step,
so they do not depend on how it is cut into micro-batches or ranks; ranks that *average* their gradients multiply by
their number.
"""

from typing import Literal, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt

Aggregation: TypeAlias = Literal["token", "sequence", "fixed"]


def trajectory_weights(
    aggregation: Aggregation, sampled_tokens_N: npt.ArrayLike, fixed_length: int | None = None
) -> npt.NDArray[np.float64]:
    """What the loss of each sampled token of a trajectory is multiplied by, shape (N,).

    - "token": 1 / all sampled tokens of the batch: every token weighs alike (DAPO, equation 12).
    - "sequence": 1 / (trajectories * the trajectory's own tokens): the mean over trajectories of their token means,
      every trajectory weighs alike (GRPO, GSPO).
    - "fixed": 1 / (trajectories * `fixed_length`): no length is favoured (Dr. GRPO, section 3.1).

    A trajectory without sampled tokens in the loss does not count as one, and weighs 0.

    Raises:
        ValueError: "fixed" without a length.
    """
    tokens_N = np.asarray(sampled_tokens_N, dtype=np.float64)
    present_N = tokens_N > 0
    trajectories = max(1, int(present_N.sum()))
    if aggregation == "token":
        weights_N = np.full_like(tokens_N, 1 / max(1.0, tokens_N.sum()))
    elif aggregation == "sequence":
        weights_N = 1 / (trajectories * np.maximum(tokens_N, 1))
    elif aggregation == "fixed":
        if fixed_length is None:
            raise ValueError("aggregation 'fixed' needs a length to divide by")
        weights_N = np.full_like(tokens_N, 1 / (trajectories * fixed_length))
    else:
        assert_never(aggregation)
    return np.where(present_N, weights_N, 0.0)
