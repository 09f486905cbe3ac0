"""Policy and value losses on per-token tensors of the same shape: a flat batch, packed rows, or any other.

Results are per-token values or sums over tokens. A caller with micro-batches or ranks multiplies token losses by the
weights of `torl.algorithms.aggregation` for the *global* batch and adds the parts, so that the result does not depend
on the split. Sequence-level losses and weights require all tokens of a sequence in one call. Values outside `loss_mask`
are ignored, even if they are not finite.

Only methods of the tensors are used: this package does not load torch.
"""

from torl.algorithms.losses.batch import BatchTokens
from torl.algorithms.losses.correction import (
    CORRECTIONS,
    CorrectionInputs,
    IcepopBounds,
    ImportanceCorrection,
    MisBounds,
    icepop,
    mis,
    tis,
)
from torl.algorithms.losses.divergence import LOG_RATIO_LIMIT, KlEstimator, LogprobGap, kl_to_reference, logprob_gap
from torl.algorithms.losses.policy import (
    POLICY_LOSSES,
    LossInputs,
    PolicyLoss,
    PolicyLossValues,
    cispo_policy_loss,
    clipped_policy_loss,
    gspo_policy_loss,
    reinforce_policy_loss,
)
from torl.algorithms.losses.value import ValueLoss, clipped_value_loss

__all__ = [
    "CORRECTIONS",
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
    "kl_to_reference",
    "logprob_gap",
    "mis",
    "reinforce_policy_loss",
    "tis",
]
