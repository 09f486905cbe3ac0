"""Stopping a run after a step: an engine that samples from another model than the learner trains."""

import math

import pytest

from torl.errors import EngineError
from torl.records.metric_names import LOGPROB_GAP_MEAN
from torl.training.health import require_matching_policies


@pytest.mark.parametrize(("gap", "limit"), [(1.01, 1.0), (math.inf, 1.0), (math.nan, 1.0), (0.03, 0.02)])
def test_logprob_gap_above_the_limit_or_nan_stops_the_run(gap: float, limit: float) -> None:
    with pytest.raises(EngineError, match=f"max_logprob_gap = {limit:g}"):
        require_matching_policies({LOGPROB_GAP_MEAN: gap}, limit)


@pytest.mark.parametrize(
    ("metrics", "limit"),
    [({LOGPROB_GAP_MEAN: 1.0}, 1.0), ({LOGPROB_GAP_MEAN: math.nan}, None), ({}, 1.0)],
    ids=["at the limit", "no limit", "a step that learned nothing"],
)
def test_run_continues(metrics: dict[str, float], limit: float | None) -> None:
    require_matching_policies(metrics, limit)
