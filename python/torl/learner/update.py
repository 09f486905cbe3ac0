"""An optimizer step of the policy or the critic from packed rows: forward, loss, backward, step, metrics."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torl.base.errors import DivergedError
from torl.base.types import Float32Array
from torl.learner.model.head import EntropyMode
from torl.learner.objective import Objective, RowTensors, policy_objective, value_objective, with_imitation
from torl.learner.rows import PackedRow, TokenRecorder
from torl.run.config import AlgorithmConfig

_SAMPLED_ELEMENTS = 1024  # of each weight, to measure whether updates are lost in rounding


def run_policy(
    engine: Any, row: RowTensors, temperature: float, *, entropy: EntropyMode = "log", imitated: bool = False
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies of a row's sampled tokens, shape (K,), computed by a DeepSpeed engine.

    With `imitated`, those of its imitated tokens follow, shape (K + J,).
    """
    predictors, targets = row.predictor_K, row.target_K
    order = None
    if imitated and row.imitated is not None:
        # One call of the head, whose predictors ascend (`SequenceParallel.slice`).
        predictors, order = torch.cat([predictors, row.imitated.predictor_J]).sort(stable=True)
        targets = torch.cat([targets, row.imitated.target_J])[order]
    logprobs, entropies = engine(
        row.token_ids_N,
        row.position_ids_N,
        predictors,
        targets,
        temperature,
        row.pieces,
        entropy,
    )
    if order is not None:
        place = order.argsort()
        logprobs, entropies = logprobs[place], entropies[place]
    return logprobs, entropies


def policy_logprobs(engine: Any, temperature: float, row: RowTensors) -> Tensor:
    """Return the log-probabilities of a row's sampled tokens, shape (K,)."""
    return run_policy(engine, row, temperature, entropy="off")[0]


def policy_outputs(
    engine: Any, temperature: float, entropy: EntropyMode, with_collisions: bool, row: RowTensors
) -> Tensor:
    """Return outputs for a row's sampled tokens, shape (K, 2), or (K, 3) with collision probabilities.

    The outputs are log-probabilities, entropies (NaN if "off"), and sums of squared probabilities. With l the
    log-probability of any token, and l' that at half the temperature, which squares and normalizes the probabilities,
    the sum of the squares is exp(2 l - l').
    """
    logprobs, entropies = run_policy(engine, row, temperature, entropy=entropy)
    if not with_collisions:
        return torch.stack((logprobs, entropies), dim=1)
    squared = (2 * logprobs - policy_logprobs(engine, temperature / 2, row)).exp()
    return torch.stack((logprobs, entropies, squared), dim=1)


def run_critic(engine: Any, row: RowTensors) -> Tensor:
    """Return the critic's value before each sampled token of a row, shape (K,), computed by a DeepSpeed engine."""
    values: Tensor = engine(row.token_ids_N, row.position_ids_N, row.predictor_K, row.pieces)
    return values


def evaluate_rows(
    engine: Any,
    rows: Sequence[PackedRow],
    device: torch.device,
    compute: Callable[[RowTensors], Tensor],
    on_row: Callable[[], object] | None = None,
) -> list[Float32Array]:
    """Evaluate a function of the sampled tokens of each row without gradient.

    Args:
        engine: DeepSpeed engine that `compute` uses.
        rows: Rows of this rank.
        device: Device of the engine.
        compute: Function that returns a tensor of shape (K, ...).
        on_row: Function that is called after each row.
    """
    training = engine.training
    values = []
    engine.eval()
    try:
        with torch.no_grad():
            for row in rows:
                value_K = compute(RowTensors(row, device)).float().cpu().numpy()
                values.append(value_K[: len(row.target_K)])  # drops the placeholder of an empty row
                if on_row is not None:
                    on_row()
    finally:
        engine.train(training)
    return values


def update_policy(
    engine: Any,
    rows: Sequence[PackedRow],
    *,
    sampled_tokens: int,
    temperature: float,
    algorithm: AlgorithmConfig,
    learning_rate: float,
    ranks_per_row: int = 1,
    on_row: Callable[[], object] | None = None,
    recorder: TokenRecorder | None = None,
) -> dict[str, float]:
    """Take one optimizer step of the policy, and return its metrics, which are equal on all ranks.

    Args:
        engine: DeepSpeed engine of a `Policy`.
        rows: Rows of this rank.
        sampled_tokens: Number of sampled tokens in the rows of all ranks, by which metrics are divided.
        temperature: Temperature of the rollouts.
        algorithm: Terms of the loss.
        learning_rate: Learning rate of this step.
        ranks_per_row: Number of ranks that have the same rows.
        on_row: Function that is called after each row.
        recorder: Recorder of the numbers of tokens, if any.

    Raises:
        DivergedError: The loss or the gradient is not finite. The weights are unchanged, but the engine must not be
            used again.
    """

    entropy: EntropyMode = "train" if algorithm.entropy_bonus > 0 else "log"

    def objective(row: RowTensors) -> Objective:
        logprobs, entropies = run_policy(engine, row, temperature, entropy=entropy, imitated=True)
        sampled = len(row.target_K)
        part = policy_objective(logprobs[:sampled], entropies[:sampled], row, algorithm)
        return part if row.imitated is None else with_imitation(part, logprobs[sampled:], row.imitated)

    return _take_step(engine, rows, objective, sampled_tokens, learning_rate, ranks_per_row, on_row, recorder)


def update_critic(
    engine: Any,
    rows: Sequence[PackedRow],
    *,
    sampled_tokens: int,
    clip: float | None,
    learning_rate: float,
    ranks_per_row: int = 1,
    on_row: Callable[[], object] | None = None,
) -> dict[str, float]:
    """Take one optimizer step of the critic. `clip` is the value clip range; see `update_policy` for the rest."""

    def objective(row: RowTensors) -> Objective:
        return value_objective(run_critic(engine, row), row, clip)

    return _take_step(engine, rows, objective, sampled_tokens, learning_rate, ranks_per_row, on_row)


def _take_step(
    engine: Any,
    rows: Sequence[PackedRow],
    objective: Callable[[RowTensors], Objective],
    sampled_tokens: int,
    learning_rate: float,
    ranks_per_row: int,
    on_row: Callable[[], object] | None,
    recorder: TokenRecorder | None = None,
) -> dict[str, float]:
    """Accumulate the gradients of all rows, then take one optimizer step.

    The loss is the sum over all ranks and rows; token weights are those of the global batch. DeepSpeed averages
    gradients over ranks, so each rank's part is multiplied by the number of ranks first.
    """
    start = time.perf_counter()
    world_size = engine.dp_world_size
    sums: dict[str, Tensor] = {}
    maxima: dict[str, Tensor] = {}
    for group in engine.optimizer.param_groups:
        group["lr"] = learning_rate
    for index, row in enumerate(rows):
        engine.set_gradient_accumulation_boundary(index == len(rows) - 1)
        part = objective(RowTensors(row, engine.device))  # the same on ranks that share the row
        engine.backward(part.loss * world_size, scale_wrt_gas=False)
        terms = {"loss": part.loss, **part.terms}
        for name, value in {**terms, **part.sums}.items():
            sums[name] = sums.get(name, 0) + value.detach().double()
        for name, value in part.maxima.items():
            maximum = value.detach().double()
            maxima[name] = torch.maximum(maxima[name], maximum) if name in maxima else maximum
        if recorder is not None:
            recorder.add(row, part.tokens)
        if on_row is not None:
            on_row()
    weights = _sampled_weights(engine.module)
    reduced_sums = torch.stack(list(sums.values())) / ranks_per_row
    reduced_maxima = torch.stack(list(maxima.values()))
    torch.distributed.all_reduce(reduced_sums)
    torch.distributed.all_reduce(reduced_maxima, op=torch.distributed.ReduceOp.MAX)
    total = dict(zip(sums, reduced_sums.tolist(), strict=True))
    if not all(map(math.isfinite, total.values())):
        raise DivergedError(
            f"the loss is not finite at a learning rate of {learning_rate:g}; no step was taken: {total}"
        )
    return {
        **{name: total.pop(name) for name in terms},
        "gradient_norm": _step(engine, learning_rate),
        "changed_weights": _changed_fraction(weights, _sampled_weights(engine.module), engine.device),
        "learning_rate": learning_rate,
        **{name: value / max(1, sampled_tokens) for name, value in total.items()},
        **dict(zip(maxima, reduced_maxima.tolist(), strict=True)),
        "update_seconds": time.perf_counter() - start,
    }


def _step(engine: Any, learning_rate: float) -> float:
    """Take the optimizer step and return the gradient norm before clipping."""
    error = f"the gradient is not finite at a learning rate of {learning_rate:g}; no step was taken"
    if engine.zero_optimization_stage() == 0:
        # Without ZeRO, DeepSpeed clips gradients, but neither detects overflow nor keeps the norm.
        gradients = [p.grad for p in engine.module.parameters() if p.grad is not None]
        norms = [torch.linalg.vector_norm(gradient, dtype=torch.float32) for gradient in gradients]
        norm = float(torch.linalg.vector_norm(torch.stack(norms)))
        if not math.isfinite(norm):
            raise DivergedError(error)
        engine.step()
        return norm
    engine.step()
    norm = float(engine.get_global_grad_norm())
    if not engine.was_step_applied():
        raise DivergedError(error)
    return norm


def _sampled_weights(module: torch.nn.Module) -> list[Tensor]:
    """Copy a few evenly spaced elements of each trained weight, or of this rank's shard under ZeRO-3."""
    weights = (getattr(weight, "ds_tensor", weight) for weight in module.parameters() if weight.requires_grad)
    flat = (weight.detach().flatten() for weight in weights)
    return [each[:: max(1, len(each) // _SAMPLED_ELEMENTS)].clone() for each in flat]


def _changed_fraction(before: Sequence[Tensor], after: Sequence[Tensor], device: torch.device) -> float:
    """Return the fraction of the elements that differ, over all ranks."""
    changed = sum(int((one != other).sum()) for one, other in zip(before, after, strict=True))
    counts = torch.tensor([changed, sum(map(len, before))], dtype=torch.float64, device=device)
    torch.distributed.all_reduce(counts)
    return float(counts[0] / counts[1].clamp(min=1))


def has_finite_weights(module: torch.nn.Module) -> bool:
    """Whether this rank's part of the trained weights is finite: its shards under ZeRO-3, else all weights."""
    weights = (getattr(weight, "ds_tensor", weight) for weight in module.parameters() if weight.requires_grad)
    # A sum needs no memory of the size of the weights. It overflows only if they are useless as well.
    return all(bool(weight.detach().sum(dtype=torch.float32).isfinite()) for weight in weights)
