"""The outcome of a run in lines, on records whose numbers are known."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from builders import asked, scored, scored_group, trajectory
from torl.run.display.outcome import describe_outcome
from torl.run.records import metric_names as names
from torl.run.records.rows import group_records
from torl.run.records.writers import RunWriter

STEP = {
    names.TIME_STEP: 2.0,
    names.TIME_WAIT: 1.0,
    names.TIME_LEARN: 0.5,
    names.TIME_SYNC: 0.5,
    names.TRAINED_TOKENS: 100.0,
    names.CODE_RATIO: 0.5,
    names.ENTROPY: 1.0,
    names.ACCURACY: 0.3,
    names.UNIFORM_GROUPS: 0.2,
    names.TRUNCATED: 0.0,
    names.LOSS: 0.1,
}


def outcome(
    directory: Path, steps: Sequence[Mapping[str, float]], accuracies: Sequence[Sequence[bool]] = ()
) -> list[str]:
    """The outcome of a run with these steps, and evaluations of these answers to one problem each, spread over it."""
    with RunWriter(directory) as writer:
        for place, answers in enumerate(accuracies):
            step = place * len(steps) // max(1, len(accuracies) - 1)
            accuracy = sum(answers) / len(answers)
            writer.write_metrics(step, names.evaluation_metrics("held", {names.ACCURACY: accuracy}))
            groups = [
                scored_group(scored(trajectory("x", prompt=asked(f"p{number}")), answer))
                for number, answer in enumerate(answers)
            ]
            writer.write_trajectories(step, list(group_records(step, groups)), evaluation_set="held")
        for step, row in enumerate(steps):
            writer.write_metrics(step, STEP | row)
    return describe_outcome(directory)


def test_cost_and_losses_are_sums_over_the_steps(tmp_path: Path) -> None:
    rows = [
        {names.dropped_groups("zero_variance"): 3.0, names.FAILED_EPISODES: 1.0, names.masked("void_turn"): 2.0}
    ] * 4
    lines = outcome(tmp_path, rows)
    assert "cost: 4 steps in 8 s (sampling 50%, learning 25%, weights 25%), 400 trained tokens (50 per second)" in lines
    assert "lost: 4 failed episodes, 12 groups with equal rewards, 8 masked responses" in lines
    assert not [line for line in lines if line.startswith("next")]


def test_numbers_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    """Records have null instead of them."""
    nan = {names.ENTROPY: math.nan, names.VALIDATION_LOSS: math.nan, names.masked("void_turn"): math.nan}
    finite = {names.VALIDATION_LOSS: 0.5, names.masked("void_turn"): 2.0}
    lines = outcome(tmp_path, [nan, finite, nan | {names.LOSS: math.inf, names.TRAINED_TOKENS: math.nan}, finite])
    assert "validation loss 0.5000 -> 0.5000" in lines
    assert "training: code ratio 0.50 -> 0.50, entropy 1.000 -> 1.000, loss 0.1000 -> 0.1000 (" in "".join(lines)
    assert "300 trained tokens" in "".join(lines)
    assert "lost: 4 masked responses" in lines


def test_cost_without_stages_has_no_brackets(tmp_path: Path) -> None:
    """Fine-tuning has only steps."""
    with RunWriter(tmp_path) as writer:
        writer.write_metrics(0, {names.TIME_STEP: 2.0, names.TRAINED_TOKENS: 100.0})
    assert describe_outcome(tmp_path)[0] == "cost: 1 step in 2 s, 100 trained tokens (50 per second)"


def test_changes_compare_the_first_and_the_last_five_steps(tmp_path: Path) -> None:
    rows = [{names.CODE_RATIO: value / 10} for value in range(11)]
    assert outcome(tmp_path, rows)[0] == (
        "training: code ratio 0.20 -> 0.80, entropy 1.000 -> 1.000, loss 0.1000 -> 0.1000 (first and last 5 steps)"
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2], "pass ratio 0.20, entropy 1.000, loss 0.1000"),
        ([2, 4], "pass ratio 0.20 -> 0.40, entropy 1.000 -> 1.000, loss 0.1000 -> 0.1000"),
        (
            [0, 2, 9, 4, 6],
            "pass ratio 0.10 -> 0.50, entropy 1.000 -> 1.000, loss 0.1000 -> 0.1000 (first and last 2 steps)",
        ),
        (
            [None, None, 2, 4],
            "pass ratio - -> 0.30, entropy 1.000 -> 1.000, loss 0.1000 -> 0.1000 (first and last 2 steps)",
        ),
    ],
)
def test_no_step_of_a_short_run_is_first_and_last(values: list[int | None], expected: str, tmp_path: Path) -> None:
    rows = [{} if value is None else {names.PASS_RATIO: value / 10} for value in values]
    assert outcome(tmp_path, rows)[0].partition(", ")[2] == expected


def test_an_accuracy_has_its_change_and_the_interval_over_problems(tmp_path: Path) -> None:
    lines = outcome(tmp_path, [{}] * 4, [[False] * 10, [True] * 5 + [False] * 5])
    # Ten changes, five of 1 and five of 0: standard deviation sqrt(10 / 9) / 2, interval 1.96 of it over sqrt(10).
    assert lines[0] == "held: accuracy 0.000 -> 0.500 (+0.500 ± 0.327)"


def test_a_single_evaluation_has_no_change(tmp_path: Path) -> None:
    assert outcome(tmp_path, [{}], [[True, False]])[0] == "held: accuracy 0.500"


def test_a_single_validation_loss_has_no_change(tmp_path: Path) -> None:
    assert "validation loss 0.5000" in outcome(tmp_path / "one", [{names.VALIDATION_LOSS: 0.5}])
    rows = [{names.VALIDATION_LOSS: loss} for loss in (0.5, 0.4, 0.25)]
    assert "validation loss 0.5000 -> 0.2500" in outcome(tmp_path / "three", rows)


def test_advice_names_the_setting(tmp_path: Path) -> None:
    row = {names.UNIFORM_GROUPS: 0.9, names.ACCURACY: 0.9, names.TRUNCATED: 0.4}
    advice = [line for line in outcome(tmp_path, [row] * 3) if line.startswith("next: ")]
    assert advice == [
        "next: 90% of the last groups have equal rewards: harder problems (selection, data.train)",
        "next: 40% of the last responses are cut: raise rollout.max_response_tokens",
    ]


def test_a_rising_run_needs_more_steps_and_a_fallen_one_its_best(tmp_path: Path) -> None:
    none, half, most, all_of = [False] * 40, [True] * 20 + [False] * 20, [True] * 36 + [False] * 4, [True] * 40
    rising = outcome(tmp_path / "rising", [{}] * 6, [none, half, most])
    assert rising[-1] == "next: accuracy still rises on held: more steps (run.steps, --run.resume true)"
    fallen = outcome(tmp_path / "fallen", [{}] * 6, [none, all_of, half])
    best = "held was best after step 3 (1.000, now 0.500)"
    assert fallen[-1] == f"next: {best}: keep it (checkpoint.keep_best, and a checkpoint at each evaluation)"


def test_an_entropy_that_vanished_while_nothing_rises_is_named(tmp_path: Path) -> None:
    rows = [{names.ENTROPY: 1.0}] * 6 + [{names.ENTROPY: 0.01}] * 6
    assert any("entropy fell below a tenth" in line for line in outcome(tmp_path, rows))


def test_a_run_without_steps_has_no_outcome(tmp_path: Path) -> None:
    assert outcome(tmp_path, []) == []
