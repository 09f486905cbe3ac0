"""Rows by hand: their layout, and refused samples."""

from dataclasses import replace

import numpy as np
import pytest

from torl.base.types import TrainingSample
from torl.learner.batch import pack_batch, scatter_to_samples
from torl.learner.rows import RowPieces


def sample(tokens: list[int], mask: list[int], advantage: float = 1.0) -> TrainingSample:
    loss_mask = np.array(mask, dtype=np.bool_)
    return TrainingSample(
        token_ids=np.array(tokens, dtype=np.int32),
        loss_mask=loss_mask,
        rollout_logprobs=np.where(loss_mask, -np.array(tokens) / 100, 0).astype(np.float32),
        advantages=np.where(loss_mask, advantage, 0).astype(np.float32),
    )


def test_a_row_of_two_samples() -> None:
    first = sample([10, 11, 12, 13, 14], [0, 0, 1, 0, 1], advantage=2.0)
    second = sample([20, 21, 22], [0, 1, 1], advantage=-1.0)
    batch = pack_batch([first, second], max_row_tokens=8, ranks=1)
    (row,) = batch.rows[0]
    assert row.samples == (0, 1)
    assert row.pieces == RowPieces((5, 3), (None, None))
    assert row.token_ids_N.tolist() == [10, 11, 12, 13, 14, 20, 21, 22]
    assert row.position_ids_N.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert row.target_K.tolist() == [12, 14, 21, 22]
    assert row.predictor_K.tolist() == [1, 3, 5, 6]
    assert row.sample_K.tolist() == [0, 0, 1, 1]
    assert row.offset_K.tolist() == [2, 4, 1, 2]
    assert row.advantage_K is not None
    assert row.advantage_K.tolist() == [2.0, 2.0, -1.0, -1.0]
    assert row.weight_K.tolist() == [0.25] * 4
    assert row.rollout_logprob_K.tolist() == pytest.approx([-0.12, -0.14, -0.21, -0.22])
    assert row.old_logprob_K is None
    assert (batch.sampled_tokens, batch.tokens, batch.samples) == (4, 8, 2)


@pytest.mark.parametrize(
    ("field", "of_row"),
    [
        ("old_logprobs", "old_logprob_K"),
        ("ref_logprobs", "ref_logprob_K"),
        ("values", "value_K"),
        ("returns", "return_K"),
    ],
)
def test_computed_arrays_follow_their_tokens(field: str, of_row: str) -> None:
    first = replace(sample([10, 11, 12], [0, 1, 1]), **{field: np.array([0, -1, -2], dtype=np.float32)})
    batch = pack_batch([first], max_row_tokens=3, ranks=1)
    assert getattr(batch.rows[0][0], of_row).tolist() == [-1, -2]


def test_on_policy_tokens_are_those_of_the_trained_version() -> None:
    first = replace(sample([10, 11, 12, 13], [0, 1, 1, 1]), policy_versions=np.array([-1, 2, 3, 3], np.int32))
    second = replace(sample([20, 21], [0, 1]), policy_versions=np.array([-1, 3], np.int32))
    (row,) = pack_batch([first, second], max_row_tokens=8, ranks=1, policy_version=3).rows[0]
    assert row.on_policy_K is not None
    assert row.on_policy_K.tolist() == [False, True, True, True]
    (row,) = pack_batch(
        [first, replace(second, policy_versions=None)], max_row_tokens=8, ranks=1, policy_version=3
    ).rows[0]
    assert row.on_policy_K is None
    (row,) = pack_batch([first, second], max_row_tokens=8, ranks=1).rows[0]
    assert row.on_policy_K is None


def test_samples_without_a_sampled_token_are_in_no_row() -> None:
    batch = pack_batch([sample([1, 2], [0, 0]), sample([3, 4], [0, 1])], max_row_tokens=8, ranks=1)
    assert batch.rows[0][0].samples == (1,)
    assert (batch.sampled_tokens, batch.tokens, batch.samples) == (1, 2, 1)


def test_a_rank_without_samples_gets_rows_without_loss() -> None:
    batch = pack_batch([sample([1, 2, 3], [0, 1, 1])], max_row_tokens=8, ranks=3)
    assert [len(rows) for rows in batch.rows] == [1, 1, 1]
    idle = [row for rows in batch.rows for row in rows if not row.samples]
    assert len(idle) == 2
    assert all(len(row.target_K) == 0 and len(row) > 0 and sum(row.pieces.lengths) == len(row) for row in idle)
    assert batch.sampled_tokens == 2


def test_a_sample_longer_than_a_row_gets_a_longer_row() -> None:
    batch = pack_batch([sample([1] * 9, [0] + [1] * 8)], max_row_tokens=4, ranks=1)
    assert [len(row) for row in batch.rows[0]] == [9]


def test_scattered_values_come_back_to_their_tokens() -> None:
    samples = [sample([10, 11, 12, 13], [0, 1, 0, 1]), sample([20, 21], [0, 1])]
    rows = pack_batch(samples, max_row_tokens=8, ranks=1).rows[0]
    found = scatter_to_samples(samples, rows, [row.target_K.astype(np.float32) for row in rows])
    assert [values.tolist() for values in found] == [[0, 11, 0, 13], [0, 21]]


def with_changes(**changes: list[float]) -> TrainingSample:
    """A sample that is right except for the given arrays."""
    good = sample([1, 2, 3], [0, 1, 1])
    arrays = {
        name: np.array(value, dtype=np.bool_ if name == "loss_mask" else np.float32) for name, value in changes.items()
    }
    return replace(good, **arrays)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (with_changes(loss_mask=[0, 1]), "sample 1: loss_mask has 2 entries for 3 tokens"),
        (with_changes(advantages=[0.0]), "sample 1: advantages has 1 entries for 3 tokens"),
        (with_changes(advantages=[0, float("nan"), 1]), "sample 1: advantages contains a value that is not finite"),
        (with_changes(rollout_logprobs=[0, float("-inf"), 1]), "sample 1: rollout_logprobs contains a value"),
        (with_changes(loss_mask=[1, 1, 1]), "sample 1: the first token is marked as sampled"),
        (with_changes(imitation_weights=[0, 1.0]), "sample 1: imitation_weights has 2 entries for 3 tokens"),
        (with_changes(imitation_weights=[0, -1.0, 0]), "sample 1: imitation_weights must be finite and at least 0"),
        (with_changes(imitation_weights=[0.5, 0, 0]), "sample 1: the first token is imitated"),
    ],
)
def test_invalid_input_is_refused(bad: TrainingSample, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack_batch([sample([1, 2], [0, 1]), bad], max_row_tokens=8, ranks=1)


def test_a_batch_of_which_only_some_were_prepared_is_refused() -> None:
    good = sample([1, 2], [0, 1])
    prepared = replace(good, ref_logprobs=np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="some samples of a batch have ref_logprobs"):
        pack_batch([good, prepared], max_row_tokens=8, ranks=1)


def test_an_aggregation_that_forgets_a_trajectory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"weights of shape \(1,\) for 2 episodes"):
        pack_batch([sample([1, 2], [0, 1])] * 2, max_row_tokens=8, ranks=1, aggregation=lambda counts: counts[:1] / 2)


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(ValueError, match="no sampled or imitated token"):
        pack_batch([sample([1, 2], [0, 0])], max_row_tokens=8, ranks=1)
    with pytest.raises(ValueError, match="no sampled or imitated token"):
        pack_batch([], max_row_tokens=8, ranks=1)


# --- imitated tokens ------------------------------------------------------------------------------------------------


def test_imitated_tokens_may_be_observed_and_have_their_own_divisor() -> None:
    """Four imitated tokens in the batch, of which the first sample has one and the second three."""
    first = replace(sample([10, 11, 12], [0, 0, 1]), imitation_weights=np.array([0, 0.5, 0], np.float32))
    second = replace(sample([20, 21, 22, 23], [0, 0, 0, 0]), imitation_weights=np.array([0, 1, 0.25, 2], np.float32))
    batch = pack_batch([first, second], max_row_tokens=8, ranks=2, skip_zero_advantage=True)
    rows = sorted((row for rows in batch.rows for row in rows), key=lambda row: row.samples)
    one, other = (row.imitated for row in rows)
    assert one is not None
    assert other is not None
    assert (one.target_J.tolist(), one.predictor_J.tolist(), one.weight_J.tolist()) == ([11], [0], [0.125])
    assert (other.target_J.tolist(), other.predictor_J.tolist()) == ([21, 22, 23], [0, 1, 2])
    assert other.weight_J.tolist() == [0.25, 0.0625, 0.5]
    assert (rows[0].target_K.tolist(), rows[0].weight_K.tolist()) == ([12], [1.0])  # as without imitation
    assert rows[1].target_K.tolist() == []
    assert (batch.sampled_tokens, batch.imitated_tokens, batch.samples) == (1, 4, 2)


def test_batch_without_imitated_tokens_has_none() -> None:
    silent = replace(sample([1, 2], [0, 1]), imitation_weights=np.zeros(2, np.float32))
    assert pack_batch([silent, sample([3, 4], [0, 1])], max_row_tokens=2, ranks=3).rows[0][0].imitated is None


def test_a_group_has_its_prompt_once() -> None:
    first = sample([1, 2, 3, 4, 5], [0, 0, 0, 1, 1])
    second = sample([1, 2, 3, 6], [0, 0, 0, 1])
    other = sample([7, 8, 9], [0, 1, 1])
    (row,) = pack_batch([first, other, second], max_row_tokens=100, ranks=1, share_prompts=True).rows[0]
    assert row.samples in ((0, 2, 1), (1, 0, 2))
    start = 0 if row.samples[0] == 0 else 3
    assert row.token_ids_N[start : start + 6].tolist() == [1, 2, 3, 4, 5, 6]
    assert row.position_ids_N[start : start + 6].tolist() == [0, 1, 2, 3, 4, 3]
    own = row.sample_K != 1
    assert row.target_K[own].tolist() == [4, 5, 6]
    assert (row.predictor_K[own] - start).tolist() == [2, 3, 2]
    assert len(row) == 9


def test_a_shared_first_token_is_not_worth_it() -> None:
    samples = [sample([1, *range(10, 40)], [0] + [1] * 30), sample([1, *range(50, 80)], [0] + [1] * 30)]
    (row,) = pack_batch(samples, max_row_tokens=100, ranks=1, share_prompts=True).rows[0]
    assert row.pieces == RowPieces((31, 31), (None, None))


def test_groups_are_divided_between_ranks() -> None:
    """A group of sixteen samples on two ranks: each computes the prompt."""
    samples = [sample([*range(10), index], [0] * 10 + [1]) for index in range(16)]
    rows = pack_batch(samples, max_row_tokens=1000, ranks=2, share_prompts=True).rows
    assert [sum(len(row.samples) for row in rank) for rank in rows] == [8, 8]


def test_keys_of_shared_prompts_are_bounded() -> None:
    """The keys and values of a prompt are stored for each of its samples: at most twice a row's tokens in all."""
    samples = [sample([*range(30), index], [0] * 30 + [1]) for index in range(16)]
    rows = pack_batch(samples, max_row_tokens=100, ranks=1, share_prompts=True).rows[0]
    assert [sum(len(samples[index]) for index in row.samples) for row in rows] == [186, 186, 124]
    assert [len(row) for row in rows] == [36, 36, 34]
