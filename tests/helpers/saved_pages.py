"""Readers of a saved page of the viewer: the recorded answers in it."""

import json
import re
from pathlib import Path
from typing import Any


def content(page: Path) -> dict[str, Any]:
    """The overview in a saved page."""
    [recorded] = re.findall('id="recorded">(.*?)</script>', page.read_text(encoding="ascii"))
    overview: dict[str, Any] = json.loads(recorded)["answers"]["/api/overview?"]
    return overview


def figures(page: Path) -> dict[str, dict[str, Any]]:
    """The figures of a page by their titles: curves, accuracies by N, and bars."""
    shown = content(page)
    drawn = [*shown["curves"], *shown["report"].get("figures", ()), *shown["report"].get("bars", ())]
    return {figure["title"]: figure for figure in drawn}


def line(figure: dict[str, Any], run: str, label: str | None = None) -> tuple[list[int], list[float]]:
    """The steps and the values of a run's first line, or of the line with a label."""
    [found] = [
        each
        for each in figure["lines"]
        if each["run"] == run and (each["line"] == 0 if label is None else each["label"] == label)
    ]
    return found["steps"], found["values"]


def tables(page: Path) -> dict[str, list[list[Any]]]:
    """The rows of each table by its title."""
    return {table["title"]: table["rows"] for table in content(page)["report"]["tables"]}
