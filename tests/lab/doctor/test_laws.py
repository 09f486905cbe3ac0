"""The doctor checks any records without an exception: it watches every run by default, and must not end one."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import asked, call, failed, printed, trajectory
from planted_runs import config
from torl.base.types import FinishReason, Grade, OutcomeStatus, UpdateNumbers
from torl.run.records import metric_names
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey
from torl_lab.doctor.registry import StepHistory, run_checks

METRICS = sorted(
    value for name, value in vars(metric_names).items() if name.isupper() and isinstance(value, str) and "/" in value
)
TEXTS = ("", "so \\boxed{1}", "```python\nprint(1)\n```\n```output", "```output\n3\n```\n" * 3, "a" * 500, "\ufffd\0")
CONFIGS = (
    {},
    {"learner__dtype": "bfloat16"},
    {"algorithm__estimator": "ppo", "selection__groups__zero_variance": False},
    {"algorithm__estimator": "reinforce_plus_plus", "selection__groups__zero_variance": False},
    {"rollout__max_staleness": 2, "algorithm__importance_correction": "tis"},
    {"rollout__max_tool_calls": 0},
)
numbers = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-9, 1e9, math.nan, math.inf, -math.inf]), st.floats(-10, 10, width=32)
)
token_numbers = st.one_of(st.sampled_from([0.0, -1e9, math.nan]), st.floats(-10, 0, width=32))
rewards = st.one_of(st.sampled_from([1.0, -1.0]), st.floats(-10, 10, width=32))


@st.composite
def grades(draw: st.DrawFn) -> Grade:
    reward = draw(rewards)
    parts = draw(st.sampled_from([{}, {"answer": reward}, {"answer": reward - 0.5, "style": 0.5}]))
    return Grade(
        reward,
        correct=draw(st.booleans()),
        answer=draw(st.sampled_from([None, "", "1", "2"])),
        failure=draw(st.sampled_from([None, None, "timeout", "error"])),
        parts=parts,
        valid_format=draw(st.booleans()),
    )


@st.composite
def records(draw: st.DrawFn) -> TrajectoryRecord:
    """A trajectory of step 0, in one of three groups."""
    turns = draw(st.lists(st.sampled_from(TEXTS), max_size=3))
    outcomes = st.sampled_from(
        [None, printed(), printed("\ud800"), *(failed("E", status=each) for each in OutcomeStatus)]
    )
    calls = [call("1" if outcome else None, outcome) for outcome in draw(st.lists(outcomes, max_size=len(turns)))]
    played = trajectory(
        *turns,
        prompt=asked(
            draw(st.sampled_from("pq")), question=draw(st.sampled_from(["?", "", "What is 1 + 1?", "\ud800"]))
        ),
        group=f"0/{draw(st.sampled_from('pqr'))}",
        sample=draw(st.integers(0, 7)),
        calls=calls[: max(0, len(turns) - 1)],
        turn_tokens=draw(st.integers(0, 3)),
        finish=draw(st.sampled_from([FinishReason.STOP, FinishReason.LENGTH, FinishReason.VOID])),
    )
    return TrajectoryRecord(0, played, draw(grades()), draw(st.none() | rewards))


@st.composite
def arrays(draw: st.DrawFn, count: int) -> Mapping[str, Any]:
    """The learner's numbers of some tokens. Which arrays exist depends on the algorithm."""
    names = ("old_logprobs", "call_logprobs", "importance_weights", "clipped")
    chosen = ["learner_logprobs", "entropies", "advantages", *draw(st.sets(st.sampled_from(names)))]
    return {name: np.full(count, draw(token_numbers), np.float32) for name in chosen}


@st.composite
def steps(draw: st.DrawFn) -> tuple[dict[str, float], list[TrajectoryRecord], dict[TokenKey, UpdateNumbers]]:
    metrics = draw(st.dictionaries(st.sampled_from(METRICS), numbers, max_size=30))
    found = draw(st.lists(records(), max_size=16, unique_by=lambda each: (_key(each).group, _key(each).sample)))
    kept = {_key(each): each for each in found if draw(st.booleans())}
    tokens = {key: UpdateNumbers(0, draw(arrays(int(each.trajectory.loss_mask_T.sum())))) for key, each in kept.items()}
    return metrics, found, tokens


def _key(record: TrajectoryRecord) -> TokenKey:
    return TokenKey(record.trajectory.group_id, record.trajectory.sample_index, 0)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CONFIGS), st.lists(st.tuples(steps(), st.integers(1, 12)), min_size=1, max_size=3))
def test_no_check_raises(changes: Mapping[str, Any], phases: list[tuple[Any, int]]) -> None:
    """Each phase of a run repeats a step."""
    history = StepHistory(config(**changes))
    for step in [step for step, count in phases for _ in range(count)]:
        history.add(len(history.steps), *step)
        failures = run_checks(history).failed
        assert failures == {}
