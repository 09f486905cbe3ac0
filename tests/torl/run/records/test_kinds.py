"""Accuracy and use of code by kinds of problems, against numbers worked out by hand."""

from collections.abc import Mapping
from typing import Any

import pytest

from builders import asked, scored, trajectory
from torl.base.errors import ConfigError
from torl.base.types import Problem, Prompt, ScoredGroup
from torl.run.records import metric_names as names
from torl.run.records.dynamics import MAX_VALUES, dynamics_by_value
from torl_lab.view.overview import curves
from torl_lab.view.panels import RunRecords

CODE, WORDS = "```python\nprint(1)\n```\n```output", "\\boxed{1}"


def group(metadata: Mapping[str, Any], *played: tuple[bool, bool]) -> ScoredGroup:
    """Responses, each with whether it writes code and whether it is correct."""
    prompt = Prompt(Problem("p", "?", "1", metadata), asked().token_ids)
    members = [
        scored(trajectory(*([CODE, WORDS] if code else [WORDS]), prompt=prompt), correct) for code, correct in played
    ]
    return ScoredGroup(prompt, tuple(members))


GROUPS = (
    group({"subject": "algebra/1"}, (True, True), (True, False)),
    group({"subject": "algebra/1"}, (False, False), (True, True)),
    group({"subject": 3}, (False, True), (False, True)),
    group({"level": 3}, (False, False)),
)


def test_each_value_of_the_field_is_a_kind_and_so_is_its_absence() -> None:
    assert dynamics_by_value(GROUPS, "subject") == {
        "by/algebra/1/reward/accuracy": 0.5,
        "by/algebra/1/tool/code_ratio": 0.75,
        "by/3/reward/accuracy": 1.0,
        "by/3/tool/code_ratio": 0.0,
        "by/none/reward/accuracy": 0.0,
        "by/none/tool/code_ratio": 0.0,
    }


def test_a_field_that_names_problems_is_refused() -> None:
    groups = [group({"id": number}, (True, True)) for number in range(MAX_VALUES + 1)]
    assert len(dynamics_by_value(groups[1:], "id")) == 2 * MAX_VALUES
    with pytest.raises(ConfigError, match="'id' has 65 values in one step; at most 64 are supported"):
        dynamics_by_value(groups, "id")


def test_the_report_has_a_line_for_each_kind_of_as_many_as_there_may_be() -> None:
    groups = [group({"id": f"kind {number}"}, (True, True)) for number in range(MAX_VALUES)]
    rows = [{"step": 0, **dynamics_by_value(groups, "id")}]
    run = RunRecords("run", rows, {})
    charts = {figure["title"]: figure for figure in curves([run])}
    assert names.kinds_of(rows, names.ACCURACY).keys() == {f"kind {number}" for number in range(MAX_VALUES)}
    for title in ("Accuracy by kind", "Code ratio by kind"):
        assert {line["label"] for line in charts[title]["lines"]} == {f"kind {number}" for number in range(MAX_VALUES)}
