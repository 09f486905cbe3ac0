"""Policy and value losses on aligned per-token tensors: a flat batch, packed rows, or any other shape they all have.

Everything here is token by token, or a sum over tokens. A caller that cuts a batch into micro-batches or ranks
multiplies by the weights of `torl.algorithms.aggregation`, which know the *global* batch, and adds the parts up; so no
result depends on the cut. Losses and weights of whole sequences need all tokens of a sequence in one call. Positions
where `loss_mask` is False never matter, whatever they hold.

All is said by methods of the tensors: nothing here loads torch.
"""

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
