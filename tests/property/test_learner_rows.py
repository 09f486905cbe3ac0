"""Laws of packed rows: every sampled token is learned exactly once, wherever it lands."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torl.learner.batch import pack_batch, scatter_to_samples
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
def test_rows_hold_every_sample_once(samples: list[TrainingSample], row_tokens: int, ranks: int) -> None:
    batch = pack_batch(samples, row_tokens=row_tokens, ranks=ranks)
    assert len({len(rows) for rows in batch.rows}) == 1
    rows = [row for rank in range(ranks) for row in batch.rows_of(rank)]
    assert sorted(index for row in rows for index in row.samples) == list(range(len(samples)))
    limit = max(row_tokens, max(len(sample) for sample in samples))
    targets = []
    for row in rows:
        assert len(row) == len(row.position_ids_N) == sum(row.sample_lengths) <= max(limit, 2)
        assert len(row.target_K) == len(row.predictor_K) == len(row.advantage_K) == len(row.rollout_logprob_K)
        if not row.samples:
            assert len(row.target_K) == 0
            continue
        # Tokens are numbered through the batch: the predictor is the token before, in the same sample.
        assert row.token_ids_N[row.predictor_K].tolist() == (row.target_K - 1).tolist()
        assert (row.position_ids_N[row.predictor_K] + 1).tolist() == row.offset_K.tolist()
        np.testing.assert_array_equal(row.advantage_K, (row.target_K / 7).astype(np.float32))
        np.testing.assert_array_equal(row.rollout_logprob_K, -(row.target_K / 7).astype(np.float32))
        targets += row.target_K.tolist()
    sampled = [int(token) for sample in samples for token in sample.token_ids[sample.loss_mask]]
    assert sorted(targets) == sampled
    assert batch.sampled_tokens == len(sampled)
    assert batch.tokens == sum(len(sample) for sample in samples)


@given(training_samples(), st.integers(1, 40), st.integers(1, 4))
def test_scatter_undoes_packing(samples: list[TrainingSample], row_tokens: int, ranks: int) -> None:
    batch = pack_batch(samples, row_tokens=row_tokens, ranks=ranks)
    rows = [row for rank in range(ranks) for row in batch.rows_of(rank)]
    found = scatter_to_samples(samples, rows, [row.advantage_K for row in rows])
    for sample, values in zip(samples, found, strict=True):
        np.testing.assert_array_equal(values, sample.advantages)
