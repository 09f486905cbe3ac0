"""The loss and metrics of a packed row, from the losses in `algorithms`."""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from torl.base.types import Float32Array
from torl.components.algorithms.losses import CorrectionInputs, LossInputs, clipped_value_loss, logprob_gap
from torl.learner.imitation import ImitatedTokens
from torl.learner.rows import PackedRow
from torl.run.config import AlgorithmConfig


@dataclass(frozen=True, slots=True)
class ImitatedTensors:
    """The imitated tokens of a row on a device."""

    predictor_J: Tensor
    target_J: Tensor
    weight_J: Tensor

    @classmethod
    def from_tokens(cls, tokens: ImitatedTokens, device: torch.device) -> Self:
        """Move the imitated tokens of a row to a device."""
        arrays = (tokens.predictor_J, tokens.target_J, tokens.weight_J)
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))


class RowTensors:
    """The arrays of a row as tensors on a device.

    A row without sampled tokens gets a placeholder whose mask is False, so that it has a backward pass.
    """

    def __init__(self, row: PackedRow, device: torch.device) -> None:
        self.token_ids_N = torch.from_numpy(row.token_ids_N).to(device, torch.int64)
        self.position_ids_N = torch.from_numpy(row.position_ids_N).to(device, torch.int64)
        self.pieces = row.pieces
        self.empty = len(row.target_K) == 0
        self.device = device
        self.predictor_K = self._indices(row.predictor_K)
        self.target_K = self._indices(row.target_K)
        # Index of each sample in the row. A sample is in one row, so that no sequence is split.
        self.sequence_K = self._indices(np.unique(row.sample_K, return_inverse=True)[1])
        self.mask_K = torch.full_like(self.target_K, not self.empty, dtype=torch.bool)
        # Tokens without a version count as sampled by the policy that is being trained.
        unknown = self.empty or row.on_policy_K is None
        self.on_policy_K = self.mask_K if unknown else torch.from_numpy(row.on_policy_K).to(device)
        self.weight_K = self._numbers(row.weight_K)
        self.rollout_logprob_K = self._numbers(row.rollout_logprob_K)
        self.advantage_K = self._numbers(row.advantage_K)
        self.ref_logprob_K = self._numbers(row.ref_logprob_K)
        self.value_K = self._numbers(row.value_K)
        self.return_K = self._numbers(row.return_K)
        self.batch_value_K = self._numbers(row.batch_value_K)
        self.imitated = None if row.imitated is None else ImitatedTensors.from_tokens(row.imitated, device)
        # None in the first update of a step, whose weights are those that are being trained.
        self.old_logprob_K = None if row.old_logprob_K is None else self._numbers(row.old_logprob_K)

    def _indices(self, array: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Tensor:
        indices = torch.zeros(1, dtype=torch.int64) if self.empty else torch.from_numpy(array)
        return indices.to(self.device)

    def _numbers(self, array: Float32Array | None) -> Tensor:
        """Return an array on the device, or zeros for None."""
        if self.empty or array is None:
            return torch.zeros(len(self.target_K), device=self.device)
        return torch.from_numpy(array).to(self.device)


@dataclass(frozen=True, slots=True)
class Objective:
    """A row's part of the loss and of the metrics. Metrics have the same names for all rows."""

    loss: Tensor
    """Scalar, with gradient."""
    sums: dict[str, Tensor]
    """Metrics that are summed over the tokens of the step."""
    maxima: dict[str, Tensor]
    """Metrics of which the maximum over the tokens of the step is logged."""
    terms: dict[str, Tensor] = field(default_factory=dict)
    """Terms of the loss that are logged separately: weighted sums over the tokens of the step."""
    tokens: dict[str, Tensor] = field(default_factory=dict)
    """Numbers of the sampled tokens for `torl.base.types.UpdateNumbers`, shape (K,), without gradient."""


def try_custom_functions(algorithm: AlgorithmConfig) -> None:
    """Call the custom functions of the loss on a few tokens, before the models are loaded.

    Raises:
        ComponentError: A function raised an exception, or returned an invalid value.
    """
    logprobs = torch.tensor([-1.0, -2.0, -0.5], requires_grad=True)
    mask, sequences = torch.tensor([True, True, False]), torch.tensor([0, 1, 1])
    fixed = logprobs.detach()
    advantages, entropies = torch.tensor([1.0, -1.0, 0.0]), torch.ones(3)
    ref_logprobs = fixed if algorithm.needs_reference else None
    batch_values = torch.ones(3) if algorithm.requirements.batch_values is not None else None
    inputs = LossInputs(logprobs, fixed, advantages, mask, sequences, fixed, entropies, ref_logprobs, batch_values)
    if algorithm.policy_loss.is_custom:
        algorithm.policy_loss.bind()(inputs)
    if algorithm.kl.coefficient > 0 and algorithm.kl.estimator.is_custom:
        algorithm.kl.estimator.bind()(inputs)
    correction = algorithm.importance_correction
    if correction is not None and correction.is_custom:
        correction.bind()(CorrectionInputs(logprobs.detach(), logprobs.detach(), mask, sequences))
    if algorithm.aggregation.is_custom:
        algorithm.aggregation.bind()(np.array([1, 2]))


def policy_objective(logprobs: Tensor, entropies: Tensor, row: RowTensors, algorithm: AlgorithmConfig) -> Objective:
    """Return the policy's objective: policy loss times importance correction, plus KL term, minus entropy bonus.

    Args:
        logprobs: Log-probabilities of the sampled tokens under the current weights, shape (K,).
        entropies: Entropy of the policy at each sampled token, shape (K,).
        row: Row of the tokens.
        algorithm: Terms of the loss.
    """
    old_logprobs = logprobs.detach() if row.old_logprob_K is None else row.old_logprob_K
    inputs = LossInputs(
        logprobs,
        old_logprobs,
        row.advantage_K,
        row.mask_K,
        row.sequence_K,
        row.rollout_logprob_K,
        entropies.detach(),
        row.ref_logprob_K if algorithm.needs_reference else None,
        row.batch_value_K if algorithm.requirements.batch_values is not None else None,
    )
    policy_loss = algorithm.policy_loss.bind()(inputs)
    per_token = policy_loss.per_token
    gap = logprob_gap(old_logprobs, row.rollout_logprob_K, row.mask_K)
    on_policy_gap = logprob_gap(old_logprobs, row.rollout_logprob_K, row.on_policy_K)
    tokens = {"learner_logprobs": logprobs.detach(), "entropies": entropies.detach(), "advantages": row.advantage_K}
    if row.old_logprob_K is not None:
        tokens["old_logprobs"] = row.old_logprob_K
    if policy_loss.clipped is not None:
        tokens["clipped"] = policy_loss.clipped
    sums = {
        "entropy": torch.where(row.mask_K, entropies, 0.0).sum(),
        "clip_fraction": policy_loss.clipped_tokens,
        "dual_clip_fraction": policy_loss.dual_clipped_tokens,
        "approximate_kl": policy_loss.approximate_kl,
        "logprob_gap_mean": gap.absolute_sum,
        "logprob_gap_kl": gap.kl,
        "logprob_gap_on_policy": on_policy_gap.absolute_sum,
        "on_policy_fraction": row.on_policy_K.sum(),
    }
    if algorithm.importance_correction is not None:
        correction_inputs = CorrectionInputs(old_logprobs, row.rollout_logprob_K, row.mask_K, row.sequence_K)
        weights = algorithm.importance_correction.bind()(correction_inputs)
        per_token = per_token * weights
        tokens["importance_weights"] = weights
        sums["importance_weight"] = torch.where(row.mask_K, weights, 0.0).sum()
        sums["importance_masked"] = (weights == 0).sum()
    if algorithm.needs_reference:
        kl = algorithm.kl.estimator.bind()(inputs).masked_fill(~row.mask_K, 0.0)
        sums["reference_kl"] = kl.sum()
        if algorithm.kl.target == "loss":
            per_token = per_token + algorithm.kl.coefficient * kl
    if algorithm.entropy_bonus > 0:
        per_token = per_token - algorithm.entropy_bonus * torch.where(row.mask_K, entropies, 0.0)
    return Objective((row.weight_K * per_token).sum(), sums, {"logprob_gap_max": gap.absolute_max}, tokens=tokens)


def with_imitation(objective: Objective, logprob_J: Tensor, imitated: ImitatedTensors) -> Objective:
    """Add the weighted cross-entropy of the imitated tokens to an objective."""
    term = -(imitated.weight_J * logprob_J).sum()
    return replace(objective, loss=objective.loss + term, terms={"imitation_loss": term})


def value_objective(values: Tensor, row: RowTensors, clip: float | None) -> Objective:
    """Return the critic's objective.

    Args:
        values: Values before the sampled tokens, shape (K,).
        row: Row of the tokens.
        clip: Value clip range. None disables clipping.
    """
    loss = clipped_value_loss(values, row.value_K, row.return_K, row.mask_K, clip=clip)
    errors = torch.where(row.mask_K, values - row.return_K, 0.0)
    sums = {
        "value_mean": torch.where(row.mask_K, values, 0.0).sum(),
        "clip_fraction": loss.clipped_tokens,
        "squared_error": errors.square().sum(),
    }
    return Objective((row.weight_K * loss.per_token).sum(), sums, {"error_max": errors.abs().max()})
