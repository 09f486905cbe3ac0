"""Estimators of KL(policy || reference) at each sampled token, as a loss or as a penalty on rewards."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from torl.base.types import BoolArray, Float32Array
from torl.components.algorithms.losses import divergence
from torl.components.algorithms.losses.policy import LossInputs, check_token_values

if TYPE_CHECKING:
    from torch import Tensor


class KlEstimator(Protocol):
    '''A KL estimator: a function of `LossInputs` with `ref_logprobs`, and its own options, that returns a tensor.

    As a loss, the gradient is taken through `inputs.logprobs`. As a penalty on rewards, `logprobs` and
    `old_logprobs` are those before the update, and entropies are 0.

    Example: the Jeffreys-like symmetric estimate x (e^x - 1), with x = ref_logprobs - logprobs.

        from torl.components.algorithms.losses import LossInputs

        def symmetric(inputs: LossInputs) -> "Tensor":
            """x * (e^x - 1)."""
            x = -inputs.log_ratio_to(inputs.ref_logprobs)
            return x * x.expm1()

        [algorithm.kl.estimator]
        name = "my_package.kl:symmetric"
    '''

    def __call__(self, inputs: LossInputs, /) -> "Tensor":
        """Estimate the KL divergence at each token, of the inputs' shape. Values outside the mask are ignored."""
        ...


def k1(inputs: LossInputs) -> "Tensor":
    """-x, with x = ref_logprobs - logprobs, clamped to +-20 (Schulman 2020, "Approximating KL divergence").

    As a loss, its gradient is 0 in expectation: use it in the reward.
    """
    return -_log_ratio(inputs)


def k2(inputs: LossInputs) -> "Tensor":
    """x^2 / 2. As a loss, it has the gradient of the KL divergence in expectation."""
    return _log_ratio(inputs).square() / 2


def k3(inputs: LossInputs) -> "Tensor":
    """e^x - x - 1, which is not negative. As a loss, its gradient is approximate, near the reference model."""
    return divergence.k3(_log_ratio(inputs))


def unbiased(inputs: LossInputs) -> "Tensor":
    """k3 * ratio, with the importance ratio of the loss (DeepSeek-V3.2, arXiv 2512.02556, equation 7).

    As a loss, it has the gradient of the KL divergence in expectation, also after updates: the ratio has a gradient.
    """
    return k3(inputs) * inputs.log_ratio().exp()


def check_kl(values: object, inputs: LossInputs) -> None:
    """Check the result of a KL estimator.

    Raises:
        InvalidResultError: `values` is not a tensor with one finite value for each token.
    """
    check_token_values("the estimate", values, inputs.logprobs)


KL_ESTIMATORS: Mapping[str, Callable[..., "Tensor"]] = MappingProxyType(
    {"k1": k1, "k2": k2, "k3": k3, "unbiased": unbiased}
)
"""Built-in KL estimators by their names in configurations."""


def kl_of_arrays(
    estimator: KlEstimator,
    *,
    old_logprobs_M: Float32Array,
    ref_logprobs_M: Float32Array,
    rollout_logprobs_M: Float32Array,
    mask_M: BoolArray,
    sequences_M: npt.NDArray[np.int64],
) -> Float32Array:
    """Return the estimate at each token before the update, computed in float64; 0 outside the mask."""
    import torch

    old, ref, rollout = (
        torch.from_numpy(array.astype(np.float64)) for array in (old_logprobs_M, ref_logprobs_M, rollout_logprobs_M)
    )
    mask, nothing = torch.from_numpy(mask_M), torch.zeros_like(old)
    inputs = LossInputs(old, old, nothing, mask, torch.from_numpy(sequences_M), rollout, nothing, ref)
    estimate: Float32Array = estimator(inputs).detach().masked_fill(~mask, 0.0).numpy().astype(np.float32)
    return estimate


def _log_ratio(inputs: LossInputs) -> "Tensor":
    assert inputs.ref_logprobs is not None  # a KL term loads the reference model
    return -inputs.log_ratio_to(inputs.ref_logprobs)
