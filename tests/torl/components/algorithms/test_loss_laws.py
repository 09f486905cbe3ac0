"""Laws of every registered policy loss, on ragged sequences with tokens that were not sampled between the others."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torl.base.types import TrainingSample
from torl.components.algorithms.aggregation import AGGREGATIONS
from torl.components.algorithms.losses import POLICY_LOSSES, LossInputs
from torl.learner.batch import pack_batch
from torl.learner.objective import RowTensors, policy_objective
from torl.run.config import AlgorithmConfig

OPTIONS: Mapping[str, Mapping[str, Any]] = {"sequence_masked": {"threshold": 0.1}}
"""The options that have no default."""
NUMBERS = ("logprobs", "old_logprobs", "advantages", "rollout_logprobs", "entropies", "ref_logprobs", "batch_values")
PENALIZED = {"kl_cov"}
"""Losses with a penalty on tokens without an advantage."""
law = settings(max_examples=20, deadline=None)
exact = {"rtol": 1e-12, "atol": 1e-14}


@st.composite
def loss_inputs(draw: st.DrawFn, max_sequences: int = 6) -> LossInputs:
    """Sequences one after the other, in float64, with ratios within and beyond every bound."""
    masks = draw(st.lists(st.lists(st.booleans(), min_size=1, max_size=8), min_size=1, max_size=max_sequences))
    spread = draw(st.sampled_from([1e-4, 0.1, 2.0]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    owner = np.repeat(np.arange(len(masks)), [len(mask) for mask in masks])
    count = len(owner)
    old = -3 * random.random(count)
    of_sequences = random.normal(size=len(masks)) * (random.random(len(masks)) < 0.8)
    return LossInputs(
        torch.tensor(np.minimum(old + spread * random.normal(size=count), -1e-3)),
        torch.tensor(old),
        torch.tensor(of_sequences[owner]),
        torch.tensor([sampled for mask in masks for sampled in mask]),
        torch.tensor(owner),
        torch.tensor(np.minimum(old + 0.1 * random.normal(size=count), -1e-3)),
        torch.tensor(random.random(count)),
        torch.tensor(old + 0.5 * random.normal(size=count)),
        torch.tensor((random.random(count) < 0.3).astype(np.float64)),
    )


def loss_and_gradient(name: str, inputs: LossInputs) -> Tensor:
    """Loss and gradient of each token, shape (2, tokens)."""
    logprobs = inputs.logprobs.detach().clone().requires_grad_()
    loss = POLICY_LOSSES[name](replace(inputs, logprobs=logprobs), **OPTIONS.get(name, {})).per_token
    (gradient,) = torch.autograd.grad(loss.sum(), logprobs)
    return torch.stack([loss.detach(), gradient])


def taken(inputs: LossInputs, places: Tensor) -> LossInputs:
    """Some of the tokens, in this order, with their sequences numbered anew."""
    _, sequences = torch.unique(inputs.sequences[places], return_inverse=True)
    arrays = {each: getattr(inputs, each)[places] for each in (*NUMBERS, "loss_mask")}
    return replace(inputs, sequences=sequences, **arrays)


@law
@given(loss_inputs(), st.sampled_from([np.nan, np.inf, -np.inf, 7.0]))
def test_tokens_that_were_not_sampled_have_no_influence_and_no_loss(inputs, garbage) -> None:
    masked = ~inputs.loss_mask
    changed = replace(inputs, **{each: getattr(inputs, each).masked_fill(masked, garbage) for each in NUMBERS})
    for name in POLICY_LOSSES:
        before, after = loss_and_gradient(name, inputs), loss_and_gradient(name, changed)
        assert torch.equal(before, after), name
        assert not after[:, masked].any(), name


@law
@given(loss_inputs(), st.integers(0, 2**32 - 1))
def test_padding_anywhere_changes_nothing(inputs, seed) -> None:
    """Each token may be followed by tokens of its sequence that were not sampled, the last by another sequence."""
    random = np.random.default_rng(seed)
    count = len(inputs.sequences)
    places = torch.from_numpy(np.sort(np.concatenate([np.arange(count), random.integers(0, count, count)])))
    is_first = torch.cat([torch.tensor([True]), places[1:] != places[:-1]])
    padded = taken(inputs, places)
    padded = replace(padded, loss_mask=padded.loss_mask & is_first)
    more = {each: torch.cat([getattr(padded, each), torch.full((3,), 0.5, dtype=torch.float64)]) for each in NUMBERS}
    padded = replace(
        padded,
        loss_mask=torch.cat([padded.loss_mask, torch.zeros(3, dtype=torch.bool)]),
        sequences=torch.cat([padded.sequences, torch.full((3,), int(padded.sequences.max()) + 1)]),
        **more,
    )
    kept = torch.cat([is_first, torch.zeros(3, dtype=torch.bool)])
    for name in POLICY_LOSSES:
        found = loss_and_gradient(name, padded)
        torch.testing.assert_close(found[:, kept], loss_and_gradient(name, inputs), **exact, msg=name)
        assert not found[:, ~kept].any(), name


@law
@given(loss_inputs(), st.integers(0, 2**32 - 1))
def test_any_cut_between_sequences_leaves_no_trace(inputs, seed) -> None:
    """Sequences in up to three calls, none of them in order."""
    part_of = torch.from_numpy(np.random.default_rng(seed).integers(0, 3, int(inputs.sequences.max()) + 1))
    for name in POLICY_LOSSES:
        whole = loss_and_gradient(name, inputs)
        for part in range(3):
            places = (part_of[inputs.sequences] == part).nonzero().flatten()
            found = loss_and_gradient(name, taken(inputs, places))
            torch.testing.assert_close(found, whole[:, places], **exact, msg=name)


@law
@given(loss_inputs())
def test_nothing_sampled_or_no_advantage_is_no_loss(inputs) -> None:
    nothing = replace(inputs, loss_mask=torch.zeros_like(inputs.loss_mask))
    indifferent = replace(inputs, advantages=torch.zeros_like(inputs.advantages))
    for name in POLICY_LOSSES:
        assert not loss_and_gradient(name, nothing).any(), name
        if name not in PENALIZED:
            assert not loss_and_gradient(name, indifferent).any(), name


def samples_of(inputs: LossInputs) -> list[TrainingSample]:
    """A sample for each sequence, after a prompt of one token. Token ids are the places in `inputs`, plus one."""
    found = []
    for number in range(int(inputs.sequences.max()) + 1):
        places = (inputs.sequences == number).nonzero().flatten()
        mask = np.pad(inputs.loss_mask[places].numpy(), (1, 0))

        def of(name: str, places: Tensor = places, mask: Any = mask) -> Any:
            return np.where(mask, np.pad(getattr(inputs, name)[places].numpy(), (1, 0)), 0).astype(np.float32)

        found.append(
            TrainingSample(
                np.pad(places.numpy() + 1, (1, 0)).astype(np.int32),
                mask,
                of("rollout_logprobs"),
                of("advantages"),
                of("old_logprobs"),
                batch_values=of("batch_values"),
            )
        )
    return found


def update(inputs: LossInputs, samples: Sequence[TrainingSample], algorithm: AlgorithmConfig, **rows: int) -> Tensor:
    """The loss of the batch and its gradient by all log-probabilities, with a backward pass for each row."""
    logprobs = torch.cat([torch.zeros(1), inputs.logprobs.float()]).requires_grad_()
    batch = pack_batch(samples, aggregation=algorithm.aggregation.bind(), skip_zero_advantage=False, **rows)
    total = torch.zeros(1)
    for packed in (row for of_rank in batch.rows for row in of_rank):
        row = RowTensors(packed, torch.device("cpu"))
        loss = policy_objective(logprobs[row.target_K], torch.zeros(len(row.target_K)), row, algorithm).loss
        loss.backward()
        total += loss.detach()
    assert logprobs.grad is not None
    return torch.cat([total, logprobs.grad])


@settings(max_examples=10, deadline=None)
@given(
    loss_inputs(max_sequences=9),
    st.sampled_from(sorted(AGGREGATIONS)),
    st.integers(1, 30),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_rows_and_ranks_and_order_change_neither_loss_nor_gradient(
    inputs, aggregation, max_row_tokens, ranks, random
) -> None:
    """Through the learner's packing and objective: the sum over rows and ranks is that of a single row."""
    inputs = replace(inputs, loss_mask=inputs.loss_mask.index_fill(0, torch.tensor([0]), True))
    samples = samples_of(inputs)
    shuffled = random.sample(samples, len(samples))
    for name in POLICY_LOSSES:
        algorithm = CHOSEN[name, aggregation]
        whole = update(inputs, samples, algorithm, max_row_tokens=4096, ranks=1)
        found = update(inputs, shuffled, algorithm, max_row_tokens=max_row_tokens, ranks=ranks)
        torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-6, msg=name)


CHOSEN = {
    (name, aggregation): AlgorithmConfig.model_validate(
        {
            "policy_loss": {"name": name, **OPTIONS.get(name, {})},
            "aggregation": {"name": aggregation, **({"length": 5} if aggregation == "fixed_length" else {})},
        }
    )
    for name in POLICY_LOSSES
    for aggregation in AGGREGATIONS
}
"""The settings of each loss and aggregation."""
