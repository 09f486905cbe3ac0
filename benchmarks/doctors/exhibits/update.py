"""Bugs of the optimizer step, in the process of a learner rank or in the packing of its rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.doctors.exhibits.catalog import exhibit
from torl.learner.rows import RowPieces

_OBJECTIVE = "torl.learner.update:policy_objective"


@exhibit(
    "torl.learner.update:run_policy",
    thread="huggingface/trl!3029",
    says="The temperature of sampling was left out of the learner's log-probabilities.",
    truth=("wrong-engine", "numeric-gap", "verify:updates", "verify:metrics", "verify:logprobs"),
    side="learner",
    settings={"rollout.temperature": 0.7},
)
def missing_temperature(original: Any) -> Any:
    """Compute log-probabilities at temperature 1."""

    def run(engine: Any, row: Any, temperature: float, **options: Any) -> Any:
        return original(engine, row, 1.0, **options)

    return run


@exhibit(
    "torl.learner.objective:RowTensors.__init__",
    thread="allenai/open-instruct!1670",
    says="The lengths of packed sequences were not passed to the model, so that attention crossed their boundaries.",
    truth=("wrong-engine", "numeric-gap", "verify:updates", "verify:metrics", "verify:logprobs"),
    side="learner",
)
def leaking_rows(original: Any) -> Any:
    """Attend to all samples of a row as if they were one."""

    def make(self: Any, row: Any, device: Any) -> None:
        original(self, row, device)
        self.pieces = RowPieces((len(row),), (None,))
        self.position_ids_N = self.position_ids_N.new_tensor(range(len(row)))

    return make


@exhibit(
    "torl.learner.optimizer_steps:pack_batch",
    thread="allenai/open-instruct!1137",
    says="The loss was averaged in each micro-batch, so that tokens of short responses weighed more.",
    truth=("verify:metrics", "replay"),
    settings={"learner.max_row_tokens": 256},
)
def mean_of_means(original: Any) -> Any:
    """Average the loss in each row, then over the rows."""

    def pack(samples: Any, **options: Any) -> Any:
        batch = original(samples, **options)
        count = sum(len(rank) for rank in batch.rows)
        total = sum(float(row.weight_K.sum()) for rank in batch.rows for row in rank)
        rows = tuple(
            tuple(replace(row, weight_K=row.weight_K * (total / count / row.weight_K.sum())) for row in rank)
            for rank in batch.rows
        )
        return replace(batch, rows=rows)

    return pack


class _Scaled:
    """A DeepSpeed engine whose backward pass multiplies the loss."""

    def __init__(self, engine: Any, factor: int) -> None:
        self._engine = engine
        self._factor = factor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def backward(self, loss: Any, **options: Any) -> Any:
        """Compute the gradient of the multiplied loss."""
        return self._engine.backward(loss * self._factor, **options)


@exhibit(
    "torl.learner.update:_take_step",
    thread="verl-project/verl!3332",
    says="The loss was not divided by the number of accumulated micro-batches before the backward pass.",
    truth=("replay",),
    side="learner",
    settings={"learner.max_row_tokens": 256},
)
def undivided_gradient(original: Any) -> Any:
    """Add up the gradients of rows as if each was a whole batch."""

    def step(engine: Any, rows: Sequence[Any], *arguments: Any) -> Any:
        return original(_Scaled(engine, len(rows)), rows, *arguments)

    return step


@exhibit(
    _OBJECTIVE,
    thread="rllm-org/rllm#81",
    says="The mean was taken of the unclipped losses; the clipped ones were computed and never used.",
    truth=("replay",),
    side="learner",
    settings={"algorithm.mini_batches": 4, "learner.learning_rate": 3e-4},
)
def unused_clip(original: Any) -> Any:
    """Compute the loss without the clip, whose metrics stay."""

    def objective(logprobs: Any, entropies: Any, row: Any, algorithm: Any) -> Any:
        made = original(logprobs, entropies, row, algorithm)
        old = logprobs.detach() if row.old_logprob_K is None else row.old_logprob_K
        loss = (row.weight_K * -(logprobs - old).exp() * row.advantage_K)[row.mask_K].sum()
        return replace(made, loss=loss)

    return objective


@exhibit(
    _OBJECTIVE,
    thread="qiancheng0/ToolRL#52",
    says="The KL term had the wrong sign in the policy loss, so that training moved away from the reference.",
    truth=("kl-blow-up", "verify:metrics", "replay"),
    side="learner",
    settings={"algorithm.kl.coefficient": 0.3, "learner.learning_rate": 3e-4, "algorithm.mini_batches": 4},
)
def inverted_kl(original: Any) -> Any:
    """Subtract the KL term from the loss."""

    def objective(logprobs: Any, entropies: Any, row: Any, algorithm: Any) -> Any:
        made = original(logprobs, entropies, row, algorithm)
        without = original(logprobs, entropies, row, _with_kl(algorithm, 1e-12))
        return replace(made, loss=2 * without.loss - made.loss)

    return objective


def _with_kl(algorithm: Any, coefficient: float) -> Any:
    return algorithm.model_copy(update={"kl": algorithm.kl.model_copy(update={"coefficient": coefficient})})


@exhibit(
    "torl.learner.rank:learning_rate_at",
    thread="NovaSky-AI/SkyRL!873",
    says="The schedule counted batches while it was stepped for each mini-batch: the rate decayed too quickly.",
    truth=("rate-without-effect", "verify:metrics"),
    side="learner",
    settings={"learner.lr_schedule": "linear", "algorithm.mini_batches": 4},
)
def quick_decay(original: Any) -> Any:
    """Decay the learning rate over the number of steps, one mini-batch at a time."""

    def rate(step: int, total_steps: int, config: Any) -> float:
        found: float = original(step, total_steps // 4, config)
        return found

    return rate


@exhibit(
    "torl.learner.update:_step",
    thread="areal-project/AReaL!1634",
    says="Weights and optimizer in bfloat16 lost small updates in rounding, unlike float32 masters.",
    truth=("rate-without-effect",),
    side="learner",
    settings={"learner.dtype": "bfloat16", "learner.learning_rate": 1e-7},
)
def lost_updates(original: Any) -> Any:
    """Round the float32 master weights to bfloat16 after each step."""

    def step(engine: Any, learning_rate: float) -> float:
        norm: float = original(engine, learning_rate)
        optimizer = engine.optimizer
        for low_group, masters in zip(optimizer.fp16_groups, optimizer.fp32_groups, strict=True):
            for low, master in zip(low_group, masters, strict=True):
                master.data.copy_(master.data.to(low.dtype))
        return norm

    return step


@exhibit(
    _OBJECTIVE,
    thread="huggingface/trl#3150",
    says="With gradient checkpointing and adapters, no input required a gradient, and nothing was learned.",
    truth=("no-gradient", "verify:metrics"),
    side="learner",
)
def detached_loss(original: Any) -> Any:
    """Detach the loss from the weights."""

    def objective(logprobs: Any, entropies: Any, row: Any, algorithm: Any) -> Any:
        made = original(logprobs, entropies, row, algorithm)
        return replace(made, loss=made.loss.detach() + 0 * logprobs.sum())

    return objective


@exhibit(
    "torl.learner.checkpoint.snapshot:_restore_state",
    thread="thinking-machines-lab/tinker-feedback#127",
    says="Loading a state with its optimizer restored the weights alone: the next step was that of a cold start.",
    truth=("replay",),
    side="learner",
    starts=2,
)
def cold_optimizer(original: Any) -> Any:
    """Restore the weights without the moments of AdamW."""

    def restore(state: Any, index: Any, directory: Any) -> None:
        original(state, index, directory)
        state.set_steps(0)

    return restore
