"""Benchmarks that train: the settings of every run that they would make are settings that a run can have."""

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from torl.config import TrainConfig
from torl.config.loading import find_config, load_config

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def runs() -> dict[str, Mapping[str, Any]]:
    """The overrides of every run, by benchmark and row."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        tables, algorithms, ahead = map(import_module, ("demo_table", "algorithm_rows", "async_training"))
        chats = [import_module(name) for name in ("demo_chat", "demo_search", "demo_dialogue", "demo_mcp")]
    finally:
        sys.path.remove(str(BENCHMARKS))
    return {
        **{f"demo_table {name}": overrides for name, (_, overrides) in tables.VARIANTS.items()},
        **{f"algorithm_table {name}": algorithms.SETTINGS | row for name, (_, row) in algorithms.ROWS.items()},
        **{f"{chat.__name__} {name}": chat.SETTINGS | row for chat in chats for name, row in chat.RUNS.items()},
        **{f"async_training {lead}": {"rollout.max_staleness": lead, **ahead.SETTINGS} for lead in (0, 2)},
    }


RUNS = runs()


@pytest.mark.parametrize("name", RUNS)
def test_the_settings_of_a_benchmark_can_be(name: str) -> None:
    words = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in RUNS[name].items()}
    assert load_config(TrainConfig, find_config("demo"), words)
