"""Laws of the trajectory record: four arrays of one length, a mask that is born with the token."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from torl._core import TrajectoryBuilder

token_ids = st.lists(st.integers(0, 2**31 - 1), max_size=6)
finite = st.floats(-100, 0, width=32)


class Splice(RuleBasedStateMachine):
    """Any sequence of appends, refused ones included, against a list of one tuple for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt = [5, 6, 7]
        self.builder = TrajectoryBuilder(self.prompt)
        self.tokens: list[tuple[int, bool, float, int]] = []
        self.turns: list[list[int]] = []
        self.in_turn = False

    @rule(sampled=st.lists(st.tuples(st.integers(0, 2**31 - 1), finite), max_size=6), version=st.integers(0, 9))
    def sample(self, sampled, version) -> None:
        start = len(self.tokens)
        self.builder.append_sampled([index for index, _ in sampled], [logprob for _, logprob in sampled], version)
        self.tokens += [(index, True, logprob, version) for index, logprob in sampled]
        if sampled and self.in_turn:
            self.turns[-1][1] = len(self.tokens)
        elif sampled:
            self.turns.append([start, len(self.tokens)])
        self.in_turn = self.in_turn or bool(sampled)

    @rule(ids=token_ids)
    def observe(self, ids) -> None:
        start = len(self.tokens)
        self.tokens += [(index, False, 0.0, -1) for index in ids]
        assert self.builder.append_observation(ids) == (start, len(self.tokens))
        self.in_turn = False

    @rule(ids=token_ids, extra=st.integers(1, 3))
    def refuse_different_lengths(self, ids, extra) -> None:
        with pytest.raises(ValueError, match="logprobs"):
            self.builder.append_sampled(ids, [-1.0] * (len(ids) + extra), 0)

    @rule(bad=st.sampled_from([float("nan"), float("inf"), float("-inf")]))
    def refuse_logprobs_that_are_not_finite(self, bad) -> None:
        with pytest.raises(ValueError, match="sampled token 1"):
            self.builder.append_sampled([1, 2], [-1.0, bad], 0)

    @rule()
    def refuse_negative_numbers(self) -> None:
        with pytest.raises(ValueError, match="token id -1"):
            self.builder.append_observation([1, -1])
        with pytest.raises(ValueError, match="token id -1"):
            self.builder.append_sampled([-1], [-0.5], 0)
        with pytest.raises(ValueError, match="policy version"):
            self.builder.append_sampled([1], [-0.5], -1)

    @invariant()
    def the_record_is_what_was_appended(self) -> None:
        builder = self.builder
        columns = [list(column) for column in zip(*self.tokens, strict=True)] or [[], [], [], []]
        assert builder.token_ids.tolist() == columns[0]
        assert builder.loss_mask.tolist() == columns[1]
        assert builder.rollout_logprobs.tolist() == columns[2]
        assert builder.policy_versions.tolist() == columns[3]
        assert builder.context() == self.prompt + columns[0]
        assert builder.turns == [tuple(turn) for turn in self.turns]
        assert len(builder) == len(self.tokens)
        assert builder.loss_mask.sum() == sum(stop - start for start, stop in builder.turns)
        assert len(builder.context()) - len(builder) == len(self.prompt)


TestSplice = Splice.TestCase


def test_types_of_the_arrays() -> None:
    builder = TrajectoryBuilder(np.array([1, 2], dtype=np.int64))
    builder.append_sampled(np.array([3], dtype=np.int32), np.array([-0.5], dtype=np.float32), 0)
    arrays = [builder.token_ids, builder.loss_mask, builder.rollout_logprobs, builder.policy_versions]
    assert [array.dtype for array in arrays] == [np.int32, np.bool_, np.float32, np.int32]


@given(token_ids)
def test_the_arrays_are_copies(ids) -> None:
    builder = TrajectoryBuilder([])
    builder.append_observation(ids)
    builder.token_ids[:] = 0
    assert builder.token_ids.tolist() == ids


def test_invalid_token_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="token id -3"):
        TrajectoryBuilder([1, -3])
    with pytest.raises(OverflowError):
        TrajectoryBuilder([2**31])
