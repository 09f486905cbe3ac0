"""The doctor on records made sick on purpose: each disease is named, and no other one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from builders import asked, failed, grade, trajectory
from torl.apps.doctor.registry import DISEASES, History, examine
from torl.apps.doctor.trends import kolmogorov_smirnov, mann_kendall
from torl.config import TrainConfig
from torl.config.loading import find_config, load_config
from torl.records import metric_names as names
from torl.records.rows import TrajectoryRecord
from torl.records.tokens import TokenKey
from torl.types import FinishReason, OutcomeStatus, Turn, UpdateNumbers

STEPS, GROUPS, SIZE, TOKENS = 30, 2, 8, 40
BLOCK = "```python\nprint(1)\n```\n```output"


def config(**overrides: Any) -> TrainConfig:
    return load_config(TrainConfig, find_config("demo"), {name.replace("__", "."): v for name, v in overrides.items()})


@dataclass
class Case:
    """A run that can be made sick: functions change its metrics, records and token numbers."""

    config: TrainConfig = field(default_factory=config)
    metrics: Callable[[int, dict[str, Any]], Mapping[str, Any]] = lambda step, row: row
    record: Callable[[int, int, TrajectoryRecord], TrajectoryRecord] = lambda step, index, record: record
    arrays: Callable[[int, dict[str, Any]], Mapping[str, Any]] = lambda step, arrays: arrays
    evaluations: tuple[Mapping[str, Any], ...] = ()
    evaluated: frozenset[str] = frozenset()

    def history(self) -> History:
        history = History(self.config, evaluations=list(self.evaluations), evaluated=self.evaluated)
        for step in range(STEPS):
            records, numbers = [], {}
            for index in range(GROUPS * SIZE):
                record = self.record(step, index, healthy_record(step, index, TOKENS))
                records.append(record)
                key = TokenKey(record.trajectory.group_id, record.trajectory.sample_index, 0)
                if index < SIZE:
                    numbers[key] = UpdateNumbers(0, self.arrays(step, healthy_arrays(record)))
            history.add(step, self.metrics(step, healthy_metrics(step)), records, numbers)
        return history


@cache
def healthy_record(step: int, index: int, tokens: int) -> TrajectoryRecord:
    """A response with one call; every second one is right."""
    number, sample = divmod(index, SIZE)
    correct = sample % 2 == 0
    prompt = asked(f"p{number}", question=f"What is the sum of {step} and {number}?")
    played = trajectory(
        BLOCK,
        f"I see that {index * 7919 % 1000} follows, so \\boxed{{1}}",
        prompt=prompt,
        group=f"{step}/p{number}",
        sample=sample,
        turn_tokens=(tokens + (index * 37 + step * 11) % 9) // 2,
        version=step,
    )
    graded = grade(correct, 1.0 if correct else -1.0, answer="1" if correct else "2")
    return TrajectoryRecord(step, played, graded, 1.0 if correct else -1.0)


def healthy_arrays(record: TrajectoryRecord) -> dict[str, Any]:
    engine = record.trajectory.rollout_logprobs_T[record.trajectory.loss_mask_T]
    noise = np.resize(np.array([1e-7, -1e-7, 3e-7, -2e-7], np.float32), len(engine))
    call_logprobs = np.full(len(engine), -6.0, np.float32)
    return {
        "learner_logprobs": engine + noise,
        "entropies": np.ones(len(engine), np.float32),
        "advantages": np.full(len(engine), record.advantage, np.float32),
        "call_logprobs": call_logprobs + np.resize(np.array([0.0, 0.2, -0.2], np.float32), len(engine)),
    }


def healthy_metrics(step: int) -> dict[str, Any]:
    """Metrics of a run on a plateau, so that no rise of the reward excuses a disease."""
    noise = (0.01, -0.02, 0.015, -0.005, 0.0)[step % 5]
    return {
        names.TIME_STEP: 6.0,
        names.REWARD_MEAN: noise,
        names.ACCURACY: 0.5 + noise,
        names.ENTROPY: 1.2 + noise,
        names.TRUNCATED: 0.02,
        names.SAMPLED_TOKENS: 40.0 + noise,
        names.CALLS_PER_TRAJECTORY: 1.0 + noise,
        names.CLIP_FRACTION: 0.0,
        names.GRADIENT_NORM: 0.5 + noise,
        names.CHANGED_WEIGHTS: 0.02,
        names.STALENESS_MAX: 0.0,
        names.FAILED_EPISODES: 0.0,
    }


def late(step: int) -> bool:
    return step >= STEPS - 6


def metric(name: str, value: Any) -> Case:
    """A run with another value of a metric in its latest steps."""
    return Case(metrics=lambda step, row: row | ({name: value} if late(step) else {}))


def records(
    change: Callable[[int, TrajectoryRecord], TrajectoryRecord], *, all_steps: bool = False, **more: Any
) -> Case:
    """A run with other records in its latest steps, or in all."""
    return Case(record=lambda step, index, each: change(index, each) if all_steps or late(step) else each, **more)


def graded(record: TrajectoryRecord, **changes: Any) -> TrajectoryRecord:
    return replace(record, grade=replace(record.grade, **changes))


def played(record: TrajectoryRecord, **changes: Any) -> TrajectoryRecord:
    return replace(record, trajectory=replace(record.trajectory, **changes))


def with_gap(gap: Callable[[int], float]) -> Case:
    """A run whose learner puts tokens lower than the engine by a number of nats that depends on the step."""

    def change(step: int, arrays: dict[str, Any]) -> dict[str, Any]:
        return arrays | {"learner_logprobs": arrays["learner_logprobs"] - np.float32(gap(step))}

    return Case(record=lambda step, index, each: sure(each), arrays=change)


def sure(record: TrajectoryRecord) -> TrajectoryRecord:
    """A record of which the engine is sure: probability 0.6."""
    return played(record, rollout_logprobs_T=np.where(record.trajectory.loss_mask_T, np.log(0.6), 0).astype(np.float32))


def endless(record: TrajectoryRecord) -> TrajectoryRecord:
    """A long record of nearly certain tokens."""
    longer = healthy_record(record.step, 9, 8000)
    logprobs = np.where(longer.trajectory.loss_mask_T, -1e-3, 0).astype(np.float32)
    return played(longer, rollout_logprobs_T=logprobs)


def turns_with(record: TrajectoryRecord, text: str) -> tuple[Turn, ...]:
    return tuple(replace(turn, text=text, blocks=()) for turn in record.trajectory.turns)


def lost_long(index: int, record: TrajectoryRecord) -> TrajectoryRecord:
    """Every fourth episode is three times as long and left out of the batch."""
    if index % 4:
        return record
    longer = healthy_record(record.step, index, 3 * TOKENS)
    return replace(longer, advantage=None)


def evaluation(step: int, accuracy: float) -> dict[str, Any]:
    return {"step": step, names.evaluation_name("heldout", names.ACCURACY): accuracy}


def two_parts(index: int, record: TrajectoryRecord) -> TrajectoryRecord:
    style = float(index % 3)
    return graded(record, parts={"answer": 0.1 * record.grade.correct, "style": style}, reward=record.grade.reward)


CRASH = failed(status=OutcomeStatus.CRASH)
SICK: dict[str, Case] = {
    "no-signal": records(lambda index, each: graded(each, reward=-1.0, correct=False, answer="2")),
    "unlearned-format": records(
        lambda index, each: graded(each, reward=-1.0, correct=False, answer=None, valid_format=False)
    ),
    "shrunken-differences": records(lambda index, each: graded(each, reward=0.54 if each.grade.correct else 0.5)),
    "discard-bias": records(lost_long, all_steps=True),
    "reward-hacking": Case(
        metrics=lambda step, row: row | ({names.REWARD_MEAN: 0.9} if step > 10 else {}),
        evaluations=(evaluation(0, 0.3), evaluation(20, 0.29)),
    ),
    "reward-without-answer": records(lambda index, each: graded(each, reward=float(index % 4 > 1))),
    "ruling-part": records(two_parts),
    "jittered-rewards": records(
        lambda index, each: graded(each, reward=each.grade.reward + 1e-4 * ((index * 7 + each.step * 3) % 11)),
        all_steps=True,
    ),
    "graded-crash": records(
        lambda index, each: (
            played(each, tool_calls=tuple(replace(one, outcome=CRASH) for one in each.trajectory.tool_calls))
            if index == 3
            else each
        )
    ),
    "credit-without-answer": records(lambda index, each: graded(each, answer=None) if index == 2 else each),
    "ungraded-answers": records(lambda index, each: graded(each, answer="1") if index == 3 else each),
    "vanished-calls": metric(names.CALLS_PER_TRAJECTORY, 0.02),
    "void-turns": records(
        lambda index, each: played(each, turns=turns_with(each, "so it is"), tool_calls=()) if index % 2 else each
    ),
    "invented-results": records(
        lambda index, each: (
            played(
                each,
                turns=tuple(
                    replace(turn, text=turn.text + " 2\n```\n```output\n3\n```") for turn in each.trajectory.turns
                ),
            )
            if index % 8 == 0
            else each
        )
    ),
    "call-token-spike": Case(
        arrays=lambda step, arrays: arrays | ({"call_logprobs": arrays["call_logprobs"] + 4} if late(step) else {})
    ),
    "no-end-token": records(
        lambda index, each: played(each, finish_reason=FinishReason.LENGTH),
        all_steps=True,
        metrics=lambda step, row: row | {names.TRUNCATED: 1.0},
    ),
    "split-episodes": records(
        lambda index, each: replace(each, branches=(each, each)),
        config=config(rollout__agent={"name": "command", "command": "true"}, rollout__format="hermes"),
    ),
    "truncation": metric(names.TRUNCATED, 0.6),
    "entropy-collapse": metric(names.ENTROPY, 0.05),
    "entropy-blow-up": metric(names.ENTROPY, 4.0),
    "gibberish": records(
        lambda index, each: (
            played(
                each,
                token_ids_T=each.trajectory.token_ids_T + 120_000,
                rollout_logprobs_T=np.where(each.trajectory.loss_mask_T, -16, 0).astype(np.float32),
            )
            if index == 9
            else each
        )
    ),
    "length-runaway": Case(metrics=lambda step, row: row | {names.SAMPLED_TOKENS: 40.0 + 3 * step}),
    "repetition": records(lambda index, each: endless(each) if index == 9 else each),
    "stale-engine": with_gap(lambda step: 1e-7 + 0.1 * step),
    "wrong-engine": with_gap(lambda step: 2.5 + 0.01 * (step % 3)),
    "numeric-gap": with_gap(lambda step: 0.3 + 0.01 * (step % 3)),
    "too-stale": metric(names.STALENESS_MAX, 12.0),
    "clip-saturation": metric(names.CLIP_FRACTION, 0.6),
    "kl-blow-up": Case(metrics=lambda step, row: row | {"learner/reference_kl": 3.0 if late(step) else 0.01}),
    "gradient-spikes": Case(metrics=lambda step, row: row | ({names.GRADIENT_NORM: 50.0} if step == 26 else {})),
    "no-gradient": metric(names.GRADIENT_NORM, 0.0),
    "rate-without-effect": metric(names.CHANGED_WEIGHTS, 0.0),
    "stall": Case(metrics=lambda step, row: row | ({names.TIME_STEP: 4000.0} if step == STEPS - 1 else {})),
    "lost-episodes": metric(names.FAILED_EPISODES, 6.0),
    "contamination": Case(evaluated=frozenset({"What is the sum of 29 and 1?", "And another question?"})),
}


def test_healthy_run_has_no_diagnosis() -> None:
    examination = examine(Case().history())
    assert [str(each) for each in examination.diagnoses] == []


def test_every_disease_has_a_sick_run() -> None:
    assert SICK.keys() == DISEASES.keys()


@pytest.mark.parametrize("name", SICK)
def test_sick_run_has_exactly_its_disease(name: str) -> None:
    examination = examine(SICK[name].history())
    assert [each.disease.id for each in examination.diagnoses] == [name]
    (diagnosis,) = examination.diagnoses
    assert diagnosis.disease.remedy in "\n".join(diagnosis.lines())
    assert len(diagnosis.symptom.evidence) <= 3
    assert name == "stall" or all(":" in each for each in diagnosis.symptom.evidence)


def test_numeric_gap_is_measured_by_the_rounding_of_the_precision() -> None:
    """0.03 nats, as of a missing temperature, are nothing in bfloat16 and 150 times the rounding of float32."""
    assert [each.disease.id for each in examine(with_gap(lambda step: 0.03).history()).diagnoses] == ["numeric-gap"]
    assert not examine(with_gap(lambda step: 1e-3).history()).diagnoses


@pytest.mark.parametrize("name", ["entropy-collapse", "vanished-calls", "length-runaway", "void-turns", "no-signal"])
def test_disease_is_conditional_on_a_flat_reward(name: str) -> None:
    case = SICK[name]
    rising = replace(case, metrics=lambda step, row: {**case.metrics(step, row), names.REWARD_MEAN: step / STEPS})
    assert name not in [each.disease.id for each in examine(rising.history()).diagnoses]


def test_missing_input_is_skipped_with_its_reason() -> None:
    examination = examine(History(config()))
    assert not examination.healthy
    assert not examination.diagnoses
    assert all(examination.skipped.values())
    assert examine(Case().history()).skipped["kl-blow-up"] == "no step has learner/reference_kl"


def test_trend_of_ten_rising_values_has_the_score_of_the_formula() -> None:
    """All 45 pairs rise, and the variance is 10 * 9 * 25 / 18 = 125 (Mann 1945)."""
    assert mann_kendall([float(value) for value in range(10)]) == pytest.approx(44 / 125**0.5)
    assert mann_kendall([1.0] * 10) == 0


@pytest.mark.parametrize(("critical", "p"), [(1.358, 0.05), (1.628, 0.01)])
def test_difference_of_distributions_has_the_p_value_of_published_tables(critical: float, p: float) -> None:
    """The statistic is k / n for two samples of n values that differ by k places (Smirnov 1948)."""
    count = 20_000
    shift = round(critical * count / (count / 2) ** 0.5)
    statistic, found = kolmogorov_smirnov(range(count), range(shift, count + shift))
    assert statistic == pytest.approx(shift / count)
    assert found == pytest.approx(p, rel=0.02)
