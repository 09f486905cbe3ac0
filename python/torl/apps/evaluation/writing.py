"""The files that say what an evaluation showed: tables for a page and for a paper, numbers for a program."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torl.apps.evaluation.page import page
from torl.apps.evaluation.results import Estimate, Variant, difference, estimates, tool_differences
from torl.apps.evaluation.tables import all_tables, latex, markdown
from torl.records.files import atomic_write


def write_all(output: Path, arms: Sequence[Variant], paper: str | None) -> dict[str, Any]:
    """Write table.md, table.tex, results.json and page.html; returns what results.json holds.

    Raises:
        RecordError: a file cannot be written.
    """
    tables = all_tables(arms, paper)
    told = results(arms)
    contents = {
        "table.md": "\n".join(markdown(table) for table in tables),
        "table.tex": "\n".join(latex(table) for table in tables),
        "results.json": json.dumps(told, indent=1) + "\n",
        "page.html": page(output.resolve().name, arms, tables),
    }
    for name, text in contents.items():
        with atomic_write(output / name) as file:
            file.write(text.encode("utf-8"))
    return told


def results(arms: Sequence[Variant]) -> dict[str, Any]:
    """Every number with its interval, as plain JSON; values between 0 and 1."""
    measured = [
        {
            "model": arm.model,
            "max_tool_calls": arm.calls,
            "measure": measure,
            "problems": {name: len(values_P) for name, values_P in sets.items()},
            "sets": _encoded(estimates(sets)),
        }
        for arm in arms
        for measure, sets in arm.measures.items()
    ]
    tool = [
        {
            "model": arm.model,
            "max_tool_calls": arm.calls,
            "measure": measure,
            "sets": _encoded(difference(arm, without, measure)),
        }
        for arm, without in tool_differences(arms)
        for measure in arm.measures
    ]
    return {"accuracy": measured, "tool_difference": tool}


def _encoded(found: dict[str, Estimate]) -> dict[str, Any]:
    return {name: {"value": each.value, "interval": list(each.interval)} for name, each in found.items()}
