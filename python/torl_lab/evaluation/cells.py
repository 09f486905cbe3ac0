"""The output directory of an evaluation, with one trajectory file per model, set, number of calls and sampling mode.

OUTPUT/<model>/settings.toml                     configuration of the model's evaluation
OUTPUT/<model>/model.json                        hashes of the model's files
OUTPUT/<model>/<set>/problems.json               problems of the set, and the problems with prompts that are too long
OUTPUT/<model>/<set>/source.json                 problem source of the set, whose metadata the grading again needs
OUTPUT/<model>/<set>/calls_<N>_<greedy|sampled>.jsonl
OUTPUT/table.md, table.tex, results.json, page.html
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torl.base.errors import RecordError
from torl.base.inputs import parse_json, read_file, reason
from torl.components.text.prompts import EncodedPrompts
from torl.rollout.group_file import GroupFile
from torl.rollout.played_output import PlayedOutput
from torl.run.config import ProblemChoice
from torl.run.config.choices import PROBLEMS
from torl.run.records.files import write_if_changed
from torl_lab.evaluation.sets import set_sort_key

SETTINGS_FILE = "settings.toml"
_MODEL_FILE = "model.json"
_PROBLEMS_FILE = "problems.json"
_SOURCE_FILE = "source.json"
_CELL = re.compile(r"calls_(\d+)_(greedy|sampled)\.jsonl")


@dataclass(frozen=True, slots=True)
class EvaluationCell:
    """A combination of model, problem set, number of calls and sampling mode."""

    directory: Path
    """Directory of the model."""
    set_name: str
    calls: int
    mode: str
    """Sampling mode, "greedy" or "sampled"."""

    @property
    def file(self) -> GroupFile:
        """File of the trajectories."""
        return GroupFile(self.directory / self.set_name / f"calls_{self.calls}_{self.mode}.jsonl")

    @property
    def batch_id(self) -> str:
        """Batch id of the episodes. It is equal for all models and numbers of calls, so that they share seeds."""
        return f"{self.set_name}-{self.mode}"


def cells_in(directory: Path) -> Iterator[EvaluationCell]:
    """Yield the cells of a model that have files, sorted by set in the papers' order and by number of calls."""
    found = [(path.parent.name, _CELL.fullmatch(path.name)) for path in directory.glob("*/calls_*.jsonl")]
    cells = [EvaluationCell(directory, set_name, int(match[1]), match[2]) for set_name, match in found if match]
    yield from sorted(cells, key=lambda cell: (*set_sort_key(cell.set_name), cell.calls, cell.mode))


def models_in(output: Path) -> list[Path]:
    """Return the directories of the models of an evaluation."""
    return sorted(path.parent for path in output.glob(f"*/{SETTINGS_FILE}"))


def write_or_check_settings(directory: Path, settings: str, model: Path) -> None:
    """Write the settings and the hashes of a model's files into its output, or compare them with existing ones.

    Raises:
        ConfigError: The directory contains trajectories with other settings, or of another model.
    """
    output = PlayedOutput(directory, played=any(cells_in(directory)))
    output.require(directory / SETTINGS_FILE, settings, "settings")
    output.require_model(directory / _MODEL_FILE, model)


def write_or_check_problems(directory: Path, set_name: str, problems: EncodedPrompts, source: ProblemChoice) -> None:
    """Write the problem ids of a set and a hash of their prompts, or compare them with existing ones.

    The source of the problems is written again: it may change its place.

    Raises:
        ConfigError: The directory contains trajectories with other problems or prompts.
    """
    prompts = [[each.problem.id, each.problem.answer, list(each.token_ids)] for each in problems.prompts]
    content = {
        "played": [prompt.problem.id for prompt in problems.prompts],
        "too_long": list(problems.too_long),
        "prompts": hashlib.sha256(json.dumps(prompts).encode()).hexdigest(),
    }
    path = directory / set_name
    output = PlayedOutput(path, played=any(cell.set_name == set_name for cell in cells_in(directory)))
    output.require(path / _PROBLEMS_FILE, json.dumps(content), "problems or prompts")
    write_if_changed(path / _SOURCE_FILE, json.dumps(source.dump()).encode())


def read_problem_ids(directory: Path, set_name: str) -> tuple[list[str], list[str]]:
    """Return the ids of a set's played problems and of its problems with prompts that are too long."""
    content = _read(directory / set_name / _PROBLEMS_FILE)
    return content["played"], content["too_long"]


def read_problem_source(directory: Path, set_name: str) -> ProblemChoice:
    """Return the problem source of a set.

    Raises:
        RecordError: The file is missing or damaged, or the source cannot be imported.
    """
    path = directory / set_name / _SOURCE_FILE
    try:
        return cast(ProblemChoice, PROBLEMS.choose(_read(path)))
    except ValueError as error:
        raise RecordError(f"{path}: {error}") from error


def _read(path: Path) -> Any:
    try:
        return parse_json(read_file(path))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: cannot be read: {reason(error)}") from error
