"""Policy and value losses on per-token tensors of the same shape: a flat batch, packed rows, or any other.

Results are per-token values or sums over tokens. A caller with micro-batches or ranks multiplies token losses by the
weights of `torl.components.algorithms.aggregation` for the *global* batch and adds the parts, so that the result does
not depend on the split. Sequence-level losses and weights require all tokens of a sequence in one call. Values outside
`loss_mask` are ignored, even if they are not finite.

Only methods of the tensors are used: this package does not load torch.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torl.components.algorithms.losses.correction import (
    CORRECTIONS,
    CorrectionInputs,
    IcepopBounds,
    ImportanceCorrection,
    MisBounds,
    icepop,
    mis,
    tis,
)
from torl.components.algorithms.losses.divergence import LOG_RATIO_LIMIT, LogprobGap, logprob_gap
from torl.components.algorithms.losses.entropy_control import (
    BatchTokens,
    clip_cov_policy_loss,
    high_entropy_policy_loss,
    kl_cov_policy_loss,
)
from torl.components.algorithms.losses.kl import KL_ESTIMATORS, KlEstimator, kl_of_arrays
from torl.components.algorithms.losses.policy import (
    LossInputs,
    PolicyLoss,
    PolicyLossValues,
    cispo_policy_loss,
    clipped_policy_loss,
    gspo_policy_loss,
    reinforce_policy_loss,
)
from torl.components.algorithms.losses.trust_region import (
    dppo_policy_loss,
    gmpo_policy_loss,
    sapo_policy_loss,
    sequence_masked_policy_loss,
    vespo_policy_loss,
)
from torl.components.algorithms.losses.value import ValueLoss, clipped_value_loss

POLICY_LOSSES: Mapping[str, Callable[..., PolicyLossValues]] = MappingProxyType(
    {
        "clipped": clipped_policy_loss,
        "gspo": gspo_policy_loss,
        "cispo": cispo_policy_loss,
        "reinforce": reinforce_policy_loss,
        "dppo": dppo_policy_loss,
        "sapo": sapo_policy_loss,
        "vespo": vespo_policy_loss,
        "gmpo": gmpo_policy_loss,
        "sequence_masked": sequence_masked_policy_loss,
        "clip_cov": clip_cov_policy_loss,
        "kl_cov": kl_cov_policy_loss,
        "high_entropy": high_entropy_policy_loss,
    }
)
"""Built-in policy losses by their names in configurations."""

__all__ = [
    "CORRECTIONS",
    "KL_ESTIMATORS",
    "LOG_RATIO_LIMIT",
    "POLICY_LOSSES",
    "BatchTokens",
    "CorrectionInputs",
    "IcepopBounds",
    "ImportanceCorrection",
    "KlEstimator",
    "LogprobGap",
    "LossInputs",
    "MisBounds",
    "PolicyLoss",
    "PolicyLossValues",
    "ValueLoss",
    "cispo_policy_loss",
    "clipped_policy_loss",
    "clipped_value_loss",
    "gspo_policy_loss",
    "icepop",
    "kl_of_arrays",
    "logprob_gap",
    "mis",
    "reinforce_policy_loss",
    "tis",
]
