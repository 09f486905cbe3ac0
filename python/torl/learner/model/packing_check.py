"""A check on a few tokens that the policy computes a model as transformers does, and separates packed samples.

Many models of transformers pass the checks of their config.json, but ignore the boundaries of packed samples, attend to
later tokens, or compute their logits with more than a matrix product. The policy would train other log-probabilities
than those that were sampled, without an error.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torl.base.errors import DataError
from torl.learner.model.attention import PACKED
from torl.learner.model.policy import Policy
from torl.learner.rows import RowPieces

_TOKENS = 8  # of each of two samples
_PIECES = RowPieces((_TOKENS, _TOKENS), (None, None))
# Differences up to the first number, or to the second times the standard deviation of the log-probabilities, are
# rounding errors. The tested families differ by up to 1e-6 in float32, and 0.007 standard deviations in bfloat16; deep
# models differ more, and tokens of mixtures of experts may change their experts. Wrong models differ by 0.1 and more.
_TOLERANCES = {torch.float32: (1e-3, 0.005), torch.bfloat16: (0.02, 0.1)}


@dataclass(frozen=True, slots=True)
class PackingDifferences:
    """Mean absolute differences, in nats, which are 0 except for rounding if the policy computes the model."""

    other_sample: float
    """Change of a sample's log-probabilities by another first sample in the row."""
    later_token: float
    """Change of the log-probabilities of tokens before one that is replaced."""
    own_logits: float
    """Difference from the logits of transformers' model for separate samples."""
    spread: float
    """Standard deviation of the log-probabilities."""


def require_separate_samples(policy: Any) -> None:
    """Check that a policy computes the log-probabilities of its model, with samples that do not affect each other.

    All ranks must call this together. It takes four forward passes of 16 tokens.

    Args:
        policy: `Policy`, or a DeepSpeed engine of one.

    Raises:
        DataError: The policy computes other log-probabilities, or the model does not support packed samples.
    """
    module: Policy = getattr(policy, "module", policy)
    model_type = module.causal_lm.config.model_type
    training = policy.training
    policy.eval()
    try:
        found = measure_differences(policy)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        # Another rank may have caused the failure of a collective.
        if isinstance(error, torch.OutOfMemoryError) or (isinstance(error, RuntimeError) and _communicates(module)):
            raise
        raise DataError(
            f"a {model_type} model cannot be trained: it does not support packed samples: {type(error).__name__}: "
            f"{error}; model.attention = 'eager' may support them"
        ) from error
    finally:
        policy.train(training)
    floor, fraction = _TOLERANCES[module.causal_lm.dtype]
    tolerance = max(floor, fraction * found.spread)
    reasons = {
        "the samples of a packed row affect each other": found.other_sample,
        "later tokens affect earlier ones": found.later_token,
        "the learner's log-probabilities are not those of transformers' model": found.own_logits,
    }
    for reason, difference in reasons.items():
        if difference > tolerance:
            raise DataError(
                f"a {model_type} model cannot be trained: {reason}, by {difference:.2g} nats on average "
                f"(tolerance {tolerance:.2g})"
            )


@torch.no_grad()
def measure_differences(policy: Any) -> PackingDifferences:
    """Return the differences for random tokens, the same on all ranks. For the argument, see the check."""
    module: Policy = getattr(policy, "module", policy)
    vocabulary = module.causal_lm.config.get_text_config().vocab_size
    # Special tokens are usually at the ends of a vocabulary.
    low, high = vocabulary // 8, vocabulary - vocabulary // 8
    samples = torch.randint(low, high, (3, _TOKENS), generator=torch.Generator().manual_seed(0))
    # Parameters that an engine offloads are on another device than its computations.
    first, second, other = samples.to(getattr(policy, "device", module.causal_lm.device))
    replaced = torch.cat([first[:-1], other[-1:]])
    base = _packed_logprobs(policy, first, second)
    other_sample = _packed_logprobs(policy, other, second)[1] - base[1]
    later_token = (_packed_logprobs(policy, replaced, second)[0] - base[0])[:-1]
    own = _own_logprobs(module, torch.stack([first, second]))
    means = [float(each.abs().mean()) for each in (other_sample, later_token, own - base)]
    return PackingDifferences(means[0], means[1], means[2], float(base.std()))


def _communicates(module: Policy) -> bool:
    """Whether a forward pass communicates with other ranks."""
    return module.parallel is not None or any(hasattr(parameter, "ds_id") for parameter in module.parameters())


def _packed_logprobs(policy: Any, first: Tensor, second: Tensor) -> Tensor:
    """Return the log-probabilities of the tokens of two samples in a row except their first, shape (2, T - 1)."""
    token_ids = torch.cat([first, second])
    positions = torch.arange(_TOKENS, device=token_ids.device)
    predictors = torch.cat([positions[:-1], positions[:-1] + _TOKENS])
    targets = token_ids[predictors + 1]
    logprobs: Tensor = policy(token_ids, positions.repeat(2), predictors, targets, 1.0, _PIECES, "off")[0]
    return logprobs.view(2, -1)


def _own_logprobs(module: Policy, token_ids: Tensor) -> Tensor:
    """Return the same from the logits of transformers' model for a batch of samples, with its attention."""
    causal_lm = module.causal_lm
    attention = causal_lm.config._attn_implementation
    if attention.startswith(PACKED):
        causal_lm.set_attn_implementation("sdpa")
    try:
        logits = causal_lm(input_ids=token_ids, use_cache=False).logits[:, :-1]
    finally:
        if attention.startswith(PACKED):
            causal_lm.set_attn_implementation(attention)
    logprobs: Tensor = logits.float().log_softmax(-1).gather(-1, token_ids[:, 1:, None]).squeeze(-1)
    return logprobs
