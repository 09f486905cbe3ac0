"""Benchmarks that train: the settings of every run that they would make are settings that a run can have."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ROOT
from benchmarks.demo import (
    algorithm_rows,
    algorithm_table,
    async_training,
    chat,
    collapses,
    dialogue,
    mcp,
    search,
    table,
)
from benchmarks.demo.measurements import read_measurements
from benchmarks.view import viewer
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl_lab.view.rows import find_place, group_places
from viewed_runs import indexed

SEARCH_TOOLS = {"rollout.tools": search.tools(Path("corpus.jsonl"))}


def runs() -> dict[str, Mapping[str, Any]]:
    """The overrides of every run, by benchmark and row."""
    return {
        **{f"table {name}": overrides for name, (_, overrides) in table.VARIANTS.items()},
        **{f"algorithm_table {name}": algorithm_rows.SETTINGS | row for name, (_, row) in algorithm_rows.ROWS.items()},
        **{
            f"{demo.__name__} {name}": demo.SETTINGS | tools | row
            for demo, tools in ((chat, {}), (search, SEARCH_TOOLS), (dialogue, {}), (mcp, {}))
            for name, row in demo.RUNS.items()
        },
        **{f"collapses {name}": {**collapses.SETTINGS, **case.settings} for name, case in collapses.CASES.items()},
        **{f"async_training {lead}": {"rollout.max_staleness": lead, **async_training.SETTINGS} for lead in (0, 2)},
    }


RUNS = runs()


@pytest.mark.parametrize("name", RUNS)
def test_the_settings_of_a_benchmark_can_be(name: str) -> None:
    words = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in RUNS[name].items()}
    assert load_config(TrainConfig, find_config("demo"), words)


def test_measurements_of_the_docs_make_the_table() -> None:
    file = ROOT / "docs" / "evidence" / "algorithm_table.jsonl"
    found = read_measurements(file, algorithm_table.Measured)
    assert found.keys() <= algorithm_rows.ROWS.keys()
    header, _, *rows = algorithm_table.lines(found)
    assert len(rows) == len(found)
    assert {row.count("|") for row in rows} == {header.count("|")}
    runs = [run for row in found.values() for run in row.values()]
    assert all(0 <= run.accuracy * 512 == round(run.accuracy * 512) <= 512 for run in runs), (
        "128 problems, four samples"
    )


def test_groups_of_the_generated_run_of_the_viewer_are_whole(tmp_path: Path) -> None:
    """Responses to other questions would be of other problems, and in groups of one."""
    viewer.write_run(tmp_path / "run", 2 * viewer.SAMPLES, 60)
    with closing(indexed(tmp_path / "run")) as reader:
        for line in (0, viewer.SAMPLES):
            group = group_places(find_place(reader, "step_000000", line))
            assert [place.reference()["line"] for place in group] == [*range(line, line + viewer.SAMPLES)]
