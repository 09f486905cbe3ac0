"""One update of the policy from packed rows: forward, loss, backward, one optimizer step, and what they measured."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torl.algorithms.losses import clipped_policy_loss, logprob_gap, token_mean, truncated_importance_weights
from torl.config import AlgorithmConfig
from torl.errors import LearnerError
from torl.learner.batch import Row
from torl.types import Float32Array

# Sums over the sampled tokens of a step, in the order of the reduced tensor.
_SUMS = ("loss", "entropy", "clipped", "dual_clipped", "approximate_kl", "gap", "gap_kl")


class RowTensors:
    """A row on the device. A row without sampled tokens gets one whose mask is False, so that a backward exists."""

    def __init__(self, row: Row, device: torch.device) -> None:
        self.token_ids_N = torch.from_numpy(row.token_ids_N).to(device, torch.int64)
        self.position_ids_N = torch.from_numpy(row.position_ids_N).to(device, torch.int64)
        self.sample_lengths = row.sample_lengths
        if len(row.target_K):
            self.predictor_K = torch.from_numpy(row.predictor_K).to(device)
            self.target_K = torch.from_numpy(row.target_K).to(device)
            self.advantage_K = torch.from_numpy(row.advantage_K).to(device)
            self.rollout_logprob_K = torch.from_numpy(row.rollout_logprob_K).to(device)
        else:
            self.predictor_K = self.target_K = torch.zeros(1, dtype=torch.int64, device=device)
            self.advantage_K = self.rollout_logprob_K = torch.zeros(1, device=device)
        self.mask_K = torch.full_like(self.target_K, bool(len(row.target_K)), dtype=torch.bool)
        self.old_logprob_K: Tensor | None = None
        if row.old_logprob_K is not None and len(row.target_K):
            self.old_logprob_K = torch.from_numpy(row.old_logprob_K).to(device)


def run_policy(engine: Any, row: RowTensors, temperature: float) -> tuple[Tensor, Tensor]:
    """Logprobs and entropies of a row's sampled tokens, shape (K,), through the engine's hooks."""
    logprobs, entropies = engine(
        row.token_ids_N,
        row.position_ids_N,
        row.predictor_K,
        row.target_K,
        temperature,
        row.sample_lengths,
    )
    return logprobs, entropies


def compute_logprobs(engine: Any, rows: Sequence[Row], temperature: float) -> list[Float32Array]:
    """Log-probabilities of the sampled tokens of each row, shape (K,), under the current weights."""
    engine.eval()
    try:
        with torch.no_grad():
            result = []
            for row in rows:
                logprobs, _ = run_policy(engine, RowTensors(row, engine.device), temperature)
                result.append(logprobs.cpu().numpy()[: len(row.target_K)])
            return result
    finally:
        engine.train()


def update_policy(
    engine: Any,
    rows: Sequence[Row],
    *,
    sampled_tokens: int,
    temperature: float,
    algorithm: AlgorithmConfig,
    learning_rate: float,
) -> dict[str, float]:
    """Gradients of all rows, then one optimizer step; the same metrics on every rank.

    The loss is the sum over all ranks and rows divided by `sampled_tokens`, the number of the whole step.
    DeepSpeed averages gradients over ranks, so each rank's part is multiplied by their number first.

    Raises:
        LearnerError: loss or gradient is not finite. The weights are those of before; the engine must not be
            used again.
    """
    start = time.perf_counter()
    world_size = engine.dp_world_size
    sums = torch.zeros(len(_SUMS), dtype=torch.float64, device=engine.device)
    largest_gap = torch.zeros((), dtype=torch.float64, device=engine.device)
    for group in engine.optimizer.param_groups:
        group["lr"] = learning_rate
    for index, row in enumerate(rows):
        engine.set_gradient_accumulation_boundary(index == len(rows) - 1)
        tensors = RowTensors(row, engine.device)
        logprobs, entropies = run_policy(engine, tensors, temperature)
        loss, row_sums, row_gap = row_loss(logprobs, entropies, tensors, sampled_tokens, algorithm)
        engine.backward(loss * world_size, scale_wrt_gas=False)
        sums += row_sums
        largest_gap = torch.maximum(largest_gap, row_gap)
    torch.distributed.all_reduce(sums)
    torch.distributed.all_reduce(largest_gap, op=torch.distributed.ReduceOp.MAX)
    total = dict(zip(_SUMS, sums.tolist(), strict=True))
    if not torch.isfinite(sums).all():
        raise LearnerError(f"the loss of a step is not finite, no step was taken: {total}")
    return {
        "loss": total["loss"],
        "gradient_norm": _step(engine),
        "learning_rate": learning_rate,
        "entropy": total["entropy"] / sampled_tokens,
        "clip_fraction": total["clipped"] / sampled_tokens,
        "dual_clip_fraction": total["dual_clipped"] / sampled_tokens,
        "approximate_kl": total["approximate_kl"] / sampled_tokens,
        "logprob_gap_mean": total["gap"] / sampled_tokens,
        "logprob_gap_max": float(largest_gap),
        "logprob_gap_kl": total["gap_kl"] / sampled_tokens,
        "update_seconds": time.perf_counter() - start,
    }


def row_loss(
    logprobs: Tensor, entropies: Tensor, row: RowTensors, sampled_tokens: int, algorithm: AlgorithmConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """A row's part of the loss of the step, its part of the sums in `_SUMS`, and its largest logprob gap."""
    old_logprobs = logprobs.detach() if row.old_logprob_K is None else row.old_logprob_K
    weights = None
    if algorithm.importance_cap is not None:
        weights = truncated_importance_weights(
            old_logprobs, row.rollout_logprob_K, row.mask_K, cap=algorithm.importance_cap
        )
    policy_loss = clipped_policy_loss(
        logprobs,
        old_logprobs,
        row.advantage_K,
        row.mask_K,
        clip_low=algorithm.clip_low,
        clip_high=algorithm.clip_high,
        dual_clip=algorithm.dual_clip,
        importance_weights=weights,
    )
    gap = logprob_gap(old_logprobs, row.rollout_logprob_K, row.mask_K)
    loss = token_mean(policy_loss.per_token, sampled_tokens)
    sums = torch.stack(
        [
            value.detach().double()
            for value in (
                loss,
                torch.where(row.mask_K, entropies, 0.0).sum(),
                policy_loss.clipped_tokens,
                policy_loss.dual_clipped_tokens,
                policy_loss.approximate_kl,
                gap.absolute_sum,
                gap.kl,
            )
        ]
    )
    return loss, sums, gap.absolute_max.detach().double()


def _step(engine: Any) -> float:
    """The optimizer step and the gradient norm before clipping."""
    if engine.zero_optimization_stage() == 0:
        # Without ZeRO DeepSpeed clips but neither looks for overflow nor keeps the norm.
        gradients = [p.grad for p in engine.module.parameters() if p.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if not torch.isfinite(torch.tensor(norm)):
            raise LearnerError(f"the gradient norm is {norm}, no step was taken")
        engine.step()
        return norm
    engine.step()
    norm = float(engine.get_global_grad_norm())
    if not engine.was_step_applied():
        raise LearnerError("the gradient norm is not finite, no step was taken")
    return norm
