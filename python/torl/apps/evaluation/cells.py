"""Where an evaluation writes: one file of trajectories for each model, set, number of calls and way of sampling.

OUTPUT/<model>/settings.toml                     what the model was played with
OUTPUT/<model>/<set>/problems.json               the problems, and which of them are too long to be played
OUTPUT/<model>/<set>/calls_<N>_<greedy|sampled>.jsonl
OUTPUT/table.md, table.tex, results.json, page.html
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torl.apps.evaluation.suites import set_sort_key
from torl.errors import ConfigError, RecordError
from torl.records.files import atomic_write, record_errors
from torl.rollout.group_file import GroupFile
from torl.text.prompts import EncodedPrompts

SETTINGS_FILE = "settings.toml"
_PROBLEMS_FILE = "problems.json"
_CELL = re.compile(r"calls_(\d+)_(greedy|sampled)\.jsonl")


@dataclass(frozen=True, slots=True)
class EvaluationCell:
    """One way of playing one set with one model."""

    directory: Path  # of the model
    set_name: str
    calls: int
    mode: str  # "greedy" or "sampled"

    @property
    def file(self) -> GroupFile:
        """Its trajectories."""
        return GroupFile(self.directory / self.set_name / f"calls_{self.calls}_{self.mode}.jsonl")

    @property
    def series(self) -> str:
        """What its episodes belong to: the same for every model and number of calls, so that their seeds agree."""
        return f"{self.set_name}-{self.mode}"


def cells_in(directory: Path) -> Iterator[EvaluationCell]:
    """The cells of a model that have files: sets as the papers' tables have them, then numbers of calls."""
    found = [(path.parent.name, _CELL.fullmatch(path.name)) for path in directory.glob("*/calls_*.jsonl")]
    cells = [EvaluationCell(directory, set_name, int(match[1]), match[2]) for set_name, match in found if match]
    yield from sorted(cells, key=lambda cell: (*set_sort_key(cell.set_name), cell.calls, cell.mode))


def models_in(output: Path) -> list[Path]:
    """The directories of the models of an evaluation."""
    return sorted(path.parent for path in output.glob(f"*/{SETTINGS_FILE}"))


def write_or_check_settings(directory: Path, settings: str) -> None:
    """Write a model's settings, or refuse to go on with others.

    Raises:
        ConfigError: the directory holds trajectories that were played with other settings.
    """
    path = directory / SETTINGS_FILE
    with record_errors(path):
        directory.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_text(encoding="utf-8") != settings:
            raise ConfigError(f"{directory} was played with other settings (see {path.name}): choose another --output")
        path.write_text(settings, encoding="utf-8")


def write_or_check_problems(directory: Path, set_name: str, problems: EncodedPrompts) -> None:
    """Write which problems a set has, or refuse to go on with others.

    Raises:
        ConfigError: the files there are of other problems or other prompts.
    """
    path = directory / set_name / _PROBLEMS_FILE
    prompts = [[each.problem.id, each.problem.answer, list(each.token_ids)] for each in problems.prompts]
    told = {
        "played": [prompt.problem.id for prompt in problems.prompts],
        "too_long": list(problems.too_long),
        "prompts": hashlib.sha256(json.dumps(prompts).encode()).hexdigest(),
    }
    if path.exists() and _read(path) != told:
        raise ConfigError(f"{path.parent} was played with other problems or prompts: choose another --output")
    with record_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(json.dumps(told).encode())


def problems_of(directory: Path, set_name: str) -> tuple[list[str], list[str]]:
    """The ids of the problems of a set that are played, and of those that are too long."""
    told = _read(directory / set_name / _PROBLEMS_FILE)
    return told["played"], told["too_long"]


def _read(path: Path) -> dict[str, Any]:
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return told
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: cannot be read: {error}") from error
