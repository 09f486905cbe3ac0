"""Laws of packed rows: every sampled token is learned exactly once, in any row."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torl.algorithms.aggregation import AGGREGATIONS
from torl.learner.batch import carries_advantage, pack_batch, scatter_to_samples
from torl.types import TrainingSample


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
        assert len(row) == len(row.position_ids_N) == sum(row.sample_lengths) <= max(limit, 2)
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
