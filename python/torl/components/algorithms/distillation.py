"""On-policy distillation: the advantage of a token is how much more probable the teacher finds it. No torch."""

import numpy as np

from torl.base.options import PositiveFloat
from torl.components.algorithms.advantages import EstimatorInputs, TokenAdvantages
from torl.components.algorithms.requirements import requires


@requires(reference=True, old_logprobs=True, uniform_groups=True)
def distillation(inputs: EstimatorInputs, *, limit: PositiveFloat = 20.0) -> TokenAdvantages:
    """log pi_teacher - log pi of each sampled token; rewards are not used (on-policy distillation, Lu et al. 2025).

    This is the negative k1 estimate of KL(policy || teacher), whose policy gradient is that of the divergence. The
    teacher is the reference model: `algorithm.kl.path`; or, with `algorithm.kl.current_policy`, the policy itself
    after another prompt (`algorithm.kl.prompt`), with a demonstration (OPSD, arXiv 2601.19897) or with the text of an
    error (SDPO, arXiv 2601.20802). The published losses take the divergence over the whole vocabulary; this one takes
    the sampled token.

    Args:
        inputs: Inputs with the log-probabilities of policy and teacher.
        limit: Maximum of |log pi_teacher - log pi|.

    Raises:
        ValueError: The inputs have no log-probabilities.
    """
    if inputs.ref_logprobs_M is None or inputs.old_logprobs_M is None:
        raise ValueError("estimator 'distillation' requires the log-probabilities of policy and teacher")
    mask_M = inputs.mask_M
    difference_M = np.zeros(len(mask_M), np.float32)
    difference_M[mask_M] = np.clip(inputs.ref_logprobs_M[mask_M] - inputs.old_logprobs_M[mask_M], -limit, limit)
    return TokenAdvantages(difference_M)
