"""Runs with a planted problem: records and metrics of a flawless run, changed in one way for each check."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from builders import asked, failed, grade, trajectory
from torl.base.types import FinishReason, OutcomeStatus, Turn, UpdateNumbers
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records import metric_names as names
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey
from torl_lab.doctor.registry import StepHistory

STEPS, GROUPS, SIZE, TOKENS = 30, 2, 8, 40
BLOCK = "```python\nprint(1)\n```\n```output"


def config(**overrides: Any) -> TrainConfig:
    return load_config(TrainConfig, find_config("demo"), {name.replace("__", "."): v for name, v in overrides.items()})


class PlantedStep(NamedTuple):
    """A step as a run records it."""

    number: int
    metrics: Mapping[str, Any]
    records: Sequence[TrajectoryRecord]
    numbers: Mapping[TokenKey, UpdateNumbers]


@dataclass
class Case:
    """A run whose metrics, records and token numbers functions change."""

    config: TrainConfig = field(default_factory=config)
    metrics: Callable[[int, dict[str, Any]], Mapping[str, Any]] = lambda step, row: row
    record: Callable[[int, int, TrajectoryRecord], TrajectoryRecord] = lambda step, index, record: record
    arrays: Callable[[int, dict[str, Any]], Mapping[str, Any]] = lambda step, arrays: arrays
    evaluations: tuple[Mapping[str, Any], ...] = ()
    evaluated: frozenset[str] = frozenset()

    def steps(self) -> Iterator[PlantedStep]:
        """The steps, with all that a run records of them."""
        for step in range(STEPS):
            records, numbers = [], {}
            for index in range(GROUPS * SIZE):
                record = self.record(step, index, flawless_record(step, index, TOKENS))
                records.append(record)
                key = TokenKey(record.trajectory.group_id, record.trajectory.sample_index, 0)
                if index < SIZE:
                    numbers[key] = UpdateNumbers(0, self.arrays(step, flawless_arrays(record)))
            yield PlantedStep(step, self.metrics(step, flawless_metrics(step)), records, numbers)

    def history(self) -> StepHistory:
        history = StepHistory(self.config, evaluations=list(self.evaluations), evaluated=self.evaluated)
        for each in self.steps():
            history.add(*each)
        return history


@cache
def flawless_record(step: int, index: int, tokens: int) -> TrajectoryRecord:
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


def flawless_arrays(record: TrajectoryRecord) -> dict[str, Any]:
    engine = record.trajectory.rollout_logprobs_T[record.trajectory.loss_mask_T]
    noise = np.resize(np.array([1e-7, -1e-7, 3e-7, -2e-7], np.float32), len(engine))
    call_logprobs = np.full(len(engine), -6.0, np.float32)
    return {
        "learner_logprobs": engine + noise,
        "entropies": np.ones(len(engine), np.float32),
        "advantages": np.full(len(engine), record.advantage, np.float32),
        "call_logprobs": call_logprobs + np.resize(np.array([0.0, 0.2, -0.2], np.float32), len(engine)),
    }


def flawless_metrics(step: int) -> dict[str, Any]:
    """Metrics of a run on a plateau, so that no rise of the reward excuses a finding."""
    noise = (0.01, -0.02, 0.015, -0.005, 0.0)[step % 5]
    return {
        names.TIME_STEP: 6.0,
        names.TIME_ROLLOUT: 4.0,
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
    longer = flawless_record(record.step, 9, 8000)
    logprobs = np.where(longer.trajectory.loss_mask_T, -1e-3, 0).astype(np.float32)
    return played(longer, rollout_logprobs_T=logprobs)


def turns_with(record: TrajectoryRecord, text: str) -> tuple[Turn, ...]:
    return tuple(replace(turn, text=text, blocks=()) for turn in record.trajectory.turns)


def inventing(record: TrajectoryRecord) -> TrajectoryRecord:
    """A record whose turns contain a result that no tool returned."""
    invented = " 2\n```\n```output\n3\n```"
    return played(record, turns=tuple(replace(turn, text=turn.text + invented) for turn in record.trajectory.turns))


def lost_long(index: int, record: TrajectoryRecord) -> TrajectoryRecord:
    """Every fourth episode is three times as long and left out of the batch."""
    if index % 4:
        return replace(record, advantage=2.0 if record.grade.correct else -1.0)  # two of six are right
    longer = flawless_record(record.step, index, 3 * TOKENS)
    return replace(longer, advantage=None)


def evaluation(step: int, accuracy: float) -> dict[str, Any]:
    return {"step": step, names.evaluation_name("heldout", names.ACCURACY): accuracy}


def two_parts(index: int, record: TrajectoryRecord) -> TrajectoryRecord:
    style = float(index % 3)
    return graded(record, parts={"answer": 0.1 * record.grade.correct, "style": style}, reward=record.grade.reward)


def dead_style(index: int, record: TrajectoryRecord) -> TrajectoryRecord:
    """A second part that gives every response the same."""
    return graded(record, parts={"answer": record.grade.reward, "style": 0.5})


END = 7


def chatty(index: int, record: TrajectoryRecord) -> TrajectoryRecord:
    """Turns that end with an end token, which the first message repeats in every eighth response."""
    trajectory = record.trajectory
    ids = trajectory.token_ids_T + 100
    stops = np.array([turn.stop for turn in trajectory.turns]) - 1
    ids[stops] = END
    if index % 8 == 3:
        ids[stops[0] + 1] = END
    return played(record, token_ids_T=ids)


def slow_replica(index: int, record: TrajectoryRecord) -> TrajectoryRecord:
    """Two replicas of the engine, of which one takes four times as long."""
    replica = index // 4 % 2
    turns = tuple(replace(turn, replica=replica) for turn in record.trajectory.turns)
    return played(record, turns=turns, seconds=1.0 + 3.0 * replica)


def with_slow_call(record: TrajectoryRecord) -> TrajectoryRecord:
    """An episode of the whole rollout, most of which is its call."""
    slow = tuple(replace(call, wait_seconds=3.5) for call in record.trajectory.tool_calls)
    return played(record, seconds=4.0, tool_calls=slow)


def rewarded_failure(index: int, record: TrajectoryRecord) -> TrajectoryRecord:
    """Half of the right responses have failed code, and no wrong one."""
    if index % 4:
        return record
    return played(record, tool_calls=tuple(replace(call, outcome=failed()) for call in record.trajectory.tool_calls))


CRASH = failed(status=OutcomeStatus.CRASH)
PLANTED: dict[str, Case] = {
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
    "reward-without-answer": records(
        lambda index, each: replace(graded(each, reward=float(index % 4 > 1)), advantage=1.0 if index % 4 > 1 else -1.0)
    ),
    "ruling-part": records(two_parts),
    "dead-part": records(dead_style, all_steps=True),
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
    "advantage-without-reward": records(lambda index, each: replace(each, advantage=1.0 if index % 4 > 1 else -1.0)),
    "rewarded-failures": records(rewarded_failure, all_steps=True),
    "credit-without-answer": records(lambda index, each: graded(each, answer=None) if index == 2 else each),
    "ungraded-answers": records(lambda index, each: graded(each, answer="1") if index == 3 else each),
    "vanished-calls": metric(names.CALLS_PER_TRAJECTORY, 0.02),
    "void-turns": records(
        lambda index, each: played(each, turns=turns_with(each, "so it is"), tool_calls=()) if index % 2 else each
    ),
    "invented-results": records(lambda index, each: inventing(each) if index % 8 == 0 else each),
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
    "turn-separator": records(chatty, all_steps=True),
    "cut-as-complete": records(
        lambda index, each: flawless_record(each.step, index, 160) if index % 4 == 0 else each,
        config=config(rollout__max_response_tokens=160),
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
    "loss-mask": Case(
        arrays=lambda step, each: {name: np.resize(array, len(array) + 4) for name, array in each.items()}
    ),
    "too-stale": metric(names.STALENESS_MAX, 12.0),
    "clip-saturation": metric(names.CLIP_FRACTION, 0.6),
    "kl-blow-up": Case(metrics=lambda step, row: row | {"learner/reference_kl": 3.0 if late(step) else 0.01}),
    "gradient-spikes": Case(metrics=lambda step, row: row | ({names.GRADIENT_NORM: 50.0} if step == 26 else {})),
    "no-gradient": metric(names.GRADIENT_NORM, 0.0),
    "rate-without-effect": metric(names.CHANGED_WEIGHTS, 0.0),
    "stall": Case(metrics=lambda step, row: row | ({names.TIME_STEP: 4000.0} if step == STEPS - 1 else {})),
    "slow-calls": Case(record=lambda step, index, each: with_slow_call(each) if late(step) and index == 5 else each),
    "lost-episodes": metric(names.FAILED_EPISODES, 6.0),
    "sick-worker": records(slow_replica, all_steps=True),
    "contamination": Case(evaluated=frozenset({"What is the sum of 29 and 1?", "And another question?"})),
}
