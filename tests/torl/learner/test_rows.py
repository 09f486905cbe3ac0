"""Laws of packed rows: every sampled token is learned exactly once, in any row."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torl.base.types import TrainingSample
from torl.components.algorithms.aggregation import AGGREGATIONS
from torl.learner.batch import carries_advantage, pack_batch, scatter_to_samples
from torl.learner.rows import PackedRow


@st.composite
def training_samples(draw: st.DrawFn) -> list[TrainingSample]:
    masks = draw(st.lists(st.lists(st.booleans(), min_size=1, max_size=30), min_size=1, max_size=20))
    masks[0] = [*masks[0], True]  # one sampled token at least
    samples = []
    token = 0
    for mask in masks:
        mask[0] = False
        ids = np.arange(token, token + len(mask), dtype=np.int32)  # every token of the batch is another
        token += len(mask)
        values = np.where(mask, ids / 7, 0).astype(np.float32)
        samples.append(TrainingSample(ids, np.array(mask, dtype=np.bool_), -values, values))
    return samples


@given(training_samples(), st.integers(1, 40), st.integers(1, 4))
def test_rows_hold_every_sample_once(samples: list[TrainingSample], max_row_tokens: int, ranks: int) -> None:
    batch = pack_batch(samples, max_row_tokens=max_row_tokens, ranks=ranks)
    assert len({len(rows) for rows in batch.rows}) == 1
    assert len(batch.rows) == ranks
    rows = [row for rows in batch.rows for row in rows]
    laid = [index for index, sample in enumerate(samples) if sample.loss_mask.any()]
    assert sorted(index for row in rows for index in row.samples) == laid
    limit = max(max_row_tokens, max(len(sample) for sample in samples))
    targets = []
    for row in rows:
        assert len(row) == len(row.position_ids_N) == sum(row.pieces.lengths) <= max(limit, 2)
        assert len(row.target_K) == len(row.predictor_K) == len(row.weight_K) == len(row.rollout_logprob_K)
        if not row.samples:
            assert len(row.target_K) == 0
            continue
        assert row.advantage_K is not None
        # Tokens are numbered through the batch: the predictor is the token before, in the same sample.
        assert row.token_ids_N[row.predictor_K].tolist() == (row.target_K - 1).tolist()
        assert (row.position_ids_N[row.predictor_K] + 1).tolist() == row.offset_K.tolist()
        np.testing.assert_array_equal(row.advantage_K, (row.target_K / 7).astype(np.float32))
        np.testing.assert_array_equal(row.rollout_logprob_K, -(row.target_K / 7).astype(np.float32))
        targets += row.target_K.tolist()
    sampled = [int(token) for sample in samples for token in sample.token_ids[sample.loss_mask]]
    assert sorted(targets) == sampled
    assert batch.sampled_tokens == len(sampled)
    assert batch.tokens == sum(len(samples[index]) for index in laid)
    assert sum(row.weight_K.sum() for row in rows) == pytest.approx(1, abs=1e-5)


@st.composite
def groups_of_samples(draw: st.DrawFn) -> list[TrainingSample]:
    """Groups whose members have the same tokens, are learned from different ones on, and are in any order."""
    flags = st.lists(st.booleans(), min_size=1, max_size=12)
    members = st.lists(st.tuples(flags, flags), min_size=1, max_size=6)
    samples = []
    for group, marks in enumerate(draw(st.lists(members, min_size=1, max_size=5))):
        prompt = draw(st.integers(1, 20))
        for sampled, imitated in marks:
            ids = np.arange(100 * group, 100 * group + prompt + len(sampled) + 1, dtype=np.int32)
            mask, weights = np.zeros(len(ids), np.bool_), np.zeros(len(ids), np.float32)
            mask[prompt:] = [*sampled, True]
            covered = imitated[: len(sampled)]
            weights[prompt : prompt + len(covered)] = covered
            values = np.where(mask, ids / 7, 0).astype(np.float32)
            samples.append(TrainingSample(ids, mask, -values, values, imitation_weights=weights))
    return draw(st.permutations(samples))


def context(row: PackedRow, index: int) -> list[int]:
    """The tokens that the token at this index attends to, in order of their positions, itself included."""
    ends = np.cumsum(row.pieces.lengths)
    piece = int(np.searchsorted(ends, index, side="right"))
    start = ends[piece] - row.pieces.lengths[piece]
    prompt = row.pieces.prompts[piece]
    seen = [] if prompt is None else [*range(ends[prompt] - row.pieces.lengths[prompt], ends[prompt])]
    seen += range(start, index + 1)
    assert row.position_ids_N[seen].tolist() == list(range(len(seen)))
    return row.token_ids_N[seen].tolist()


@given(groups_of_samples(), st.integers(1, 80), st.integers(1, 3))
def test_a_shared_prompt_leaves_every_token_its_context(
    samples: list[TrainingSample], max_row_tokens: int, ranks: int
) -> None:
    batch = pack_batch(samples, max_row_tokens=max_row_tokens, ranks=ranks, share_prompts=True)
    plain = pack_batch(samples, max_row_tokens=max_row_tokens, ranks=ranks)
    assert (batch.tokens, batch.sampled_tokens, batch.samples) == (plain.tokens, plain.sampled_tokens, plain.samples)
    rows = [row for rows in batch.rows for row in rows]
    assert sorted(index for row in rows for index in row.samples) == list(range(len(samples)))
    assert sum(map(len, rows)) <= sum(len(row) for rows in plain.rows for row in rows) + 2 * len(rows)  # empty rows
    longest = max(max_row_tokens, *map(len, samples))
    targets, imitated = [], []
    for row in rows:
        assert len(row) == sum(row.pieces.lengths) <= max(longest, 2)
        assert len(row.pieces.lengths) == len(row.pieces.prompts)
        keys = [*row.pieces.lengths]
        keys += [row.pieces.lengths[prompt] for prompt in row.pieces.prompts if prompt is not None]
        assert sum(keys) <= 3 * max(longest, 2)  # twice as many of samples, and their prompts
        for index, offset, predictor in zip(row.sample_K, row.offset_K, row.predictor_K, strict=True):
            assert context(row, predictor) == samples[index].token_ids[:offset].tolist()
        targets += row.target_K.tolist()
        if row.imitated is not None:
            tokens = zip(row.imitated.predictor_J, row.imitated.target_J, strict=True)
            imitated += [(tuple(context(row, predictor)), target) for predictor, target in tokens]
    assert sorted(targets) == sorted(int(token) for each in samples for token in each.token_ids[each.loss_mask])
    expected = [
        (tuple(sample.token_ids[:place].tolist()), int(sample.token_ids[place]))
        for sample in samples
        if sample.imitation_weights is not None
        for place in np.flatnonzero(sample.imitation_weights)
    ]
    assert sorted(imitated) == sorted(expected)


@given(training_samples(), st.integers(1, 40), st.integers(1, 4))
def test_scatter_undoes_packing(samples: list[TrainingSample], max_row_tokens: int, ranks: int) -> None:
    batch = pack_batch(samples, max_row_tokens=max_row_tokens, ranks=ranks)
    rows = [row for rows in batch.rows for row in rows]
    found = scatter_to_samples(samples, rows, [-row.rollout_logprob_K for row in rows])
    for sample, values in zip(samples, found, strict=True):
        np.testing.assert_array_equal(values, sample.advantages)


@given(
    training_samples(),
    st.sampled_from(["token", "sequence", "fixed_length"]),
    st.sets(st.integers(0, 19)),
    st.integers(1, 40),
    st.integers(1, 3),
)
def test_dropping_zero_advantages_changes_no_weight(samples, aggregation, zeroed, max_row_tokens, ranks) -> None:
    """The weight of each token is that of the formula over the whole batch, for any assignment to rows."""
    zeroed -= {0}
    samples = [
        replace(sample, advantages=np.zeros_like(sample.advantages)) if index in zeroed else sample
        for index, sample in enumerate(samples)
    ]
    options = {"length": 50} if aggregation == "fixed_length" else {}
    weighting = partial(AGGREGATIONS[aggregation], **options)
    batch = pack_batch(
        samples,
        max_row_tokens=max_row_tokens,
        ranks=ranks,
        aggregation=weighting,
        skip_zero_advantage=True,
    )
    counts = [int(sample.loss_mask.sum()) for sample in samples]
    present = sum(count > 0 for count in counts)
    laid = {index for rows in batch.rows for row in rows for index in row.samples}
    assert laid == {index for index, sample in enumerate(samples) if carries_advantage(sample) and counts[index]}
    for row in (row for rows in batch.rows for row in rows):
        for sample, weight in zip(row.sample_K, row.weight_K, strict=True):
            divisors = {"token": sum(counts), "sequence": present * counts[sample], "fixed_length": present * 50}
            assert weight == pytest.approx(1 / divisors[aggregation], rel=1e-6)
