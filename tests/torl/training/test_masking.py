"""Masks by hand: trajectories without a loss, for which reason; the measures against naive readings."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import call, failed, scored, trajectory, turn
from torl._core import repetition
from torl.base.errors import ComponentError
from torl.base.types import BoolArray, FinishReason, ScoredTrajectory, Trajectory
from torl.recipes.simpletir import has_void_turn
from torl.recipes.zerotir import mismatches_code, repeated_trigrams
from torl.run.config import SelectionConfig
from torl.training.samples import training_samples
from torl.training.selection import mask_samples, masked_by_reference, masked_trajectories


def masks(**masks: dict[str, float]) -> SelectionConfig:
    return SelectionConfig.model_validate({"mask": masks})


def indices(found: Mapping[str, BoolArray]) -> dict[str, set[int]]:
    return {name: set(np.flatnonzero(masked).tolist()) for name, masked in found.items()}


CODE = "```python\nprint(1)\n```\n"
CALL = f"{CODE}```output"


@pytest.mark.parametrize(
    ("turns", "calls", "void"),
    [
        ([CALL, "So \\boxed{1}"], 1, False),
        ([CALL, "So it is one."], 1, True),
        (["Let me see.\n```output", "So \\boxed{1}"], 1, True),  # a call without code
        (["\\boxed{1} it is ```output", "and \\boxed{1}"], 1, False),
        (["I do not know."], 0, True),
        (["\\boxed{1}"], 0, False),
        ([CALL], 1, False),  # the observation filled the response
        ([CALL, f"\n{CALL}", "\\boxed{2}"], 2, False),
        ([CALL, "\nhm ```output", "\\boxed{2}"], 2, True),
        (["```python\nprint(1"], 0, True),  # cut off inside the block
    ],
)
def test_void_turns(turns: list[str], calls: int, void: bool) -> None:
    assert has_void_turn(trajectory(*turns, calls=[call()] * calls)) == void


def test_the_blocks_of_a_turn_are_those_that_were_found_when_it_was_sampled() -> None:
    assert has_void_turn(trajectory(turn(CODE, blocks=())))


# --- code -----------------------------------------------------------------------------------------------------------

BLOCK, ANSWER = "```python\nprint(1)\n```", "\n```output\n1\n```\n"


def saying(text: str, calls: int = 0, *, ok: bool = True, finish: FinishReason = FinishReason.STOP) -> Trajectory:
    """A response with this whole text and as many calls."""
    outcome = None if ok else failed()
    return replace(trajectory(*[""] * (calls + 1), calls=[call(outcome=outcome)] * calls, finish=finish), text=text)


@pytest.mark.parametrize(
    ("text", "calls", "mismatches"),
    [
        ("\\boxed{1}", 0, False),
        (BLOCK + ANSWER, 1, False),
        (BLOCK + ANSWER + "so " + BLOCK + ANSWER, 2, False),
        (BLOCK + ANSWER + "so " + BLOCK, 1, True),  # a block past the last call
        (BLOCK + ANSWER, 0, True),  # its output is the model's own
        (BLOCK + ANSWER + "```output\n2\n```", 1, True),
        (BLOCK + ANSWER + "```python\nprint(", 1, True),
        ("```python print(1)```" + ANSWER, 1, True),
    ],
)
def test_blocks_outputs_and_calls_are_counted_in_the_text(text: str, calls: int, mismatches: bool) -> None:
    assert mismatches_code(saying(text, calls)) == mismatches


def test_a_call_that_had_nothing_to_run_answers_no_block() -> None:
    played = replace(trajectory("", "", calls=[call(None)]), text=BLOCK + ANSWER)
    assert mismatches_code(played)


def test_mismatch_masks_credited_or_valid_responses_with_code() -> None:
    def silent(**grade: bool) -> list[bool]:
        """Without a call, with one that failed, with one that succeeded."""
        played = [saying(BLOCK), saying(BLOCK * 2, 1, ok=False), saying(BLOCK * 2, 1)]
        members = [scored(each, **grade) for each in played]
        return masked_trajectories(members, masks(mismatched_code={}))["mismatched_code"].tolist()

    assert silent(correct=True) == [True, True, True]
    assert silent(correct=False) == [False, False, True]
    assert silent(correct=True, valid_format=False) == [False, False, False]


# --- repetition -----------------------------------------------------------------------------------------------------


@given(st.text(st.sampled_from("ab\u5317"), max_size=30))
def test_repetition_is_the_share_of_substrings_that_stand_there_already(text: str) -> None:
    substrings = [text[start:stop] for start, stop in combinations(range(len(text) + 1), 2)]
    expected = 1 - len(set(substrings)) / len(substrings) if len(text) > 1 else 0.0
    assert repetition(text) == pytest.approx(expected, abs=1e-12)


@given(st.text(st.sampled_from("ab"), min_size=4, max_size=40).filter(lambda text: len(set(text)) > 1))
def test_repetition_equals_suffix_array_overlap(text: str) -> None:
    """As ORZ and ZeroTIR define it: 2 / (n (n + 1)) times the sum of the longest common prefixes."""
    suffixes = sorted(text[start:] for start in range(len(text)))
    shared = sum(
        next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        for one, other in pairwise(suffixes)
    )
    assert repetition(text) == pytest.approx(2 * shared / (len(text) * (len(text) + 1)), abs=1e-12)


def test_repetition_of_a_long_text_is_linear() -> None:
    """One that is quadratic would need 10^10 steps, or as much memory."""
    assert repetition("0123456789" * 10_000) == pytest.approx(1.0, abs=1e-3)


def test_repeated_words() -> None:
    assert repeated_trigrams("a b c d") == 0
    assert repeated_trigrams("a b c a b c a") == pytest.approx(2 / 5)  # abc bca cab abc bca
    assert repeated_trigrams("\u5317\u5317 \u5317\u5317\u5317") == pytest.approx(2 / 3)
    assert repeated_trigrams("a b") == 0


def test_rewritten_program_has_no_cycle() -> None:
    """Correct retries are what ZeroTIR's score lets through."""
    program = "def solve(limit):\n    total = 0\n    for i in range(1, limit + 1):\n        if i % {} == 0:\n"
    program += "            total += i\n    return total\n\nprint(solve({}))\n"
    text = "".join(f"That failed, so once more:\n```python\n{program.format(i, 10**i)}```\n" for i in (3, 5, 7))
    text = f"We sum the multiples of the numbers below a bound, by brute force. {text} So the sum is found."
    members = [scored(saying(text), valid_format=False), scored(saying("again and " * 50), valid_format=False)]
    members.append(scored(saying("again and " * 50)))
    found = masked_trajectories(members, masks(invalid_repetitive={}))
    assert indices(found) == {"invalid_repetitive": {1}}


# --- all of them ------------------------------------------------------------------------------------------------------

EVERYTHING = masks(
    void_turn={},
    wrong_truncated={},
    mismatched_code={},
    repetitive={"above": 0.5},
    invalid_repetitive={},
    undecided={},
    improbable={"above": 5.0},  # needs the reference model, and is applied later
)


def test_each_reason_is_counted() -> None:
    members = [
        scored(saying("fine")),
        scored(trajectory("no")),
        scored(saying("cut", finish=FinishReason.LENGTH), correct=False),
        scored(saying("right but cut", finish=FinishReason.LENGTH), valid_format=False),
        scored(saying(BLOCK)),
        scored(saying("7" * 99)),
        scored(saying("do go on " * 9), valid_format=False),
        scored(saying("?"), correct=False, failure="timeout"),
    ]
    boxed = [replace(each, trajectory=replace(each.trajectory, turns=(turn("\\boxed{1}"),))) for each in members]
    boxed[1] = members[1]
    assert indices(masked_trajectories(boxed, EVERYTHING)) == {
        "void_turn": {1},
        "wrong_truncated": {2, 3},
        "mismatched_code": {4},
        "repetitive": {5, 6},
        "invalid_repetitive": {6},
        "undecided": {7},
    }
    assert masked_trajectories(boxed, SelectionConfig()) == {}


def test_samples_that_the_reference_finds_too_improbable() -> None:
    """Perplexities 2, 8 and 8; the observation between the second's turns does not count, and the third is silent."""
    members = [scored(trajectory("a")), scored(trajectory("b", "c")), scored(trajectory("d"))]
    samples = training_samples(members)
    logprobs = [np.where(each.loss_mask, -np.log(2), 0).astype(np.float32) for each in samples]
    logprobs[1] = np.where(samples[1].loss_mask, -np.log(8), 99).astype(np.float32)
    prepared = [replace(each, ref_logprobs=numbers) for each, numbers in zip(samples, logprobs, strict=True)]
    prepared += mask_samples([replace(prepared[1])], {"void_turn": np.array([True])})
    four = [*members, members[1]]
    for most, expected in ((7.9, {1}), (8.1, set()), (1.9, {0, 1, 2})):
        found = masked_by_reference(four, prepared, masks(improbable={"above": most}, undecided={}))
        assert indices(found) == {"improbable": expected}
    assert masked_by_reference(members, samples, SelectionConfig()) == {}
    with pytest.raises(ComponentError, match="prepare them first"):
        masked_by_reference(members, samples, masks(improbable={}))


def test_masked_samples_have_no_loss_tokens_and_others_keep_theirs() -> None:
    samples = training_samples([scored(trajectory("a", "b")), scored(trajectory("c")), scored(trajectory("d"))])
    reasons = {"void_turn": [False, True, False], "repetitive": [False, True, True], "wrong_truncated": [False] * 3}
    found = mask_samples(samples, {name: np.array(masked) for name, masked in reasons.items()})
    assert [each.loss_mask.tolist() for each in found] == [
        [False] * 3 + [True, False, False, True],
        [False] * 4,
        [False] * 4,
    ]
    assert all(np.array_equal(one.token_ids, other.token_ids) for one, other in zip(samples, found, strict=True))
    assert mask_samples(samples, {}) == samples


def test_estimates_of_masked_samples_are_cleared() -> None:
    """ZeroTIR whitens with masked trajectories in, and then takes them out of the loss."""
    (sample,) = training_samples([scored(trajectory("a"))])
    ones = np.ones(len(sample), np.float32)
    (found,) = mask_samples([replace(sample, advantages=ones, returns=ones)], {"repetitive": np.array([True])})
    assert found.advantages is not None
    assert found.returns is not None
    assert not found.advantages.any()
    assert not found.returns.any()


def beginning_with(member: ScoredTrajectory, letter: str) -> bool:
    return member.trajectory.text.startswith(letter)


def test_a_custom_mask_is_a_function_with_options() -> None:
    config = SelectionConfig.model_validate({"mask": {"a": {"name": f"{__name__}:beginning_with", "letter": "a"}}})
    found = masked_trajectories([scored(saying("ab")), scored(saying("ba"))], config)
    assert indices(found) == {"a": {0}}
