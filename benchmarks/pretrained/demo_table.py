"""The table of `demo.py`, from the evaluation records of its runs.

Strict accuracy needs the correct answer in a box. Lenient accuracy also accepts a response whose last number, outside
of code, is the answer. Only sampled text counts: a number in an observation is the tool's, not the model's.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.pretrained.demo_data import PROBLEMS
from torl.base.types import ScoredGroup, ScoredTrajectory
from torl.components.grading.verdict import compare_exactly
from torl.rollout.group_file import GroupFile
from torl.run.records import metric_names as names
from torl.run.records.dynamics import training_dynamics
from torl.run.records.files import SUMMARY_FILE, evaluation_files
from torl_lab.evaluation.cells import cells_in
from torl_lab.evaluation.estimates import difference_over_seeds, mean_over_seeds, pass_at_k

START_RESULTS = "start/results.json"
SETS = tuple(PROBLEMS)
SAMPLES = 8
TRAINED = "trained"
LABELS = {
    "start": "the untouched model",
    "warm": "warm start",
    TRAINED: "reinforcement learning",
    "further": "further updates of the warm start, as many",
    "rejection": "rejection sampling, as many updates",
    "no_tool": "reinforcement learning, no tool",
    "observations": "reinforcement learning, observations of other calls",
    "rewards": "reinforcement learning, rewards of other responses",
}
RUNS = tuple(name for name in LABELS if name not in ("start", "warm"))
_CODE = re.compile(r"```(?:python|py)\b.*?(?:```|\Z)", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?")

Groups = Mapping[str, Sequence[ScoredGroup]]
"""The groups of an evaluation by the name of their file: the set, with the suffix `.greedy` if they are greedy."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One model on the evaluation sets. Accuracies of single problems are by id; all others are of held-out pairs."""

    heldout: Mapping[str, float]
    reworded: Mapping[str, float]
    seen: Mapping[str, float]
    greedy: float
    lenient: float
    pass_at_8: float
    code_ratio: float
    pass_ratio: float | None


Row = Mapping[int, Measured]
"""The finished runs of a line by seed."""


def last_number(text: str) -> str | None:
    """Return the last number outside of Python blocks, without separators of thousands; None for a text without one."""
    numbers = _NUMBER.findall(_CODE.sub(" ", text))
    return numbers[-1].replace(",", "") if numbers else None


def is_leniently_correct(member: ScoredTrajectory) -> bool:
    """Whether the answer is correct, or the last number of the sampled text equals the reference, an integer."""
    number = last_number(member.trajectory.sampled_text)
    reference = member.trajectory.prompt.problem.answer
    verdict = None if number is None else compare_exactly(reference, number, exact=True)
    return member.grade.correct or (verdict is not None and verdict.correct)


def measure(groups: Groups) -> Measured:
    """Measure an evaluation. A problem of which an episode failed has pass@k of its remaining samples."""
    heldout, members = groups["heldout"], [member for group in groups["heldout"] for member in group.members]
    dynamics = training_dynamics(heldout)
    solved = {group.prompt.problem.id: [member.grade.correct for member in group.members] for group in heldout}
    return Measured(
        **{name: {group.prompt.problem.id: group.accuracy for group in groups[name]} for name in SETS},
        greedy=fmean(group.accuracy for group in groups["heldout.greedy"]),
        lenient=fmean(is_leniently_correct(member) for member in members),
        pass_at_8=fmean(pass_at_k(len(each), sum(each), min(SAMPLES, len(each))) for each in solved.values()),
        code_ratio=dynamics[names.CODE_RATIO],
        pass_ratio=dynamics.get(names.PASS_RATIO),
    )


def groups_of_run(run: Path, evaluation: int) -> Groups:
    """Read an evaluation of a run: 0 for the one before its first step, -1 for the last."""
    return {label: GroupFile(files[evaluation]).read() for label, files in evaluation_files(run).items()}


def groups_of_model(directory: Path) -> Groups:
    """Read the evaluation of a model by `torl evaluate`."""
    suffix = {"sampled": "", "greedy": ".greedy"}
    return {cell.set_name + suffix[cell.mode]: cell.file.read() for cell in cells_in(directory)}


def finished(directory: Path, name: str) -> dict[int, Path]:
    """Return the finished runs of a line by seed."""
    runs = {
        int(path.parent.name.rpartition("-")[2]): path.parent for path in directory.glob(f"{name}-*/{SUMMARY_FILE}")
    }
    return dict(sorted(runs.items()))


def measure_all(directory: Path) -> dict[str, Row]:
    """Measure every finished run. The warm start is the evaluation of reinforcement learning before its first step."""
    found: dict[str, Row] = {}
    if (directory / START_RESULTS).exists():
        found["start"] = {0: measure(groups_of_model(directory / "start" / "start"))}
    for name, (line, evaluation) in {"warm": (TRAINED, 0), **{name: (name, -1) for name in RUNS}}.items():
        if runs := finished(directory, line):
            found[name] = {seed: measure(groups_of_run(run, evaluation)) for seed, run in runs.items()}
    return found


def lines(found: Mapping[str, Row]) -> list[str]:
    """Format the table: accuracies in %, and the gain of reinforcement learning over each line by seed and problem."""
    accuracy = {
        name: {set_name: {seed: getattr(run, set_name) for seed, run in row.items()} for set_name in SETS}
        for name, row in found.items()
    }
    columns = ("held-out pairs", "reinforcement learning - this", "verdict", "greedy", "lenient", "pass@8")
    columns += ("code ratio", "pass ratio", "in other words", "trained pairs and singles, new numbers")
    table = [f"| line | seeds | {' | '.join(columns)} |", "|---" * (2 + len(columns)) + "|"]
    for name in (name for name in LABELS if name in found):
        runs = list(found[name].values())
        gain = None
        if name != TRAINED and TRAINED in found:
            gain = difference_over_seeds(accuracy[TRAINED]["heldout"], accuracy[name]["heldout"])
        pass_ratios = [run.pass_ratio for run in runs if run.pass_ratio is not None]
        cells = [
            LABELS[name],
            str(len(runs)),
            str(mean_over_seeds(accuracy[name]["heldout"])),
            "-" if gain is None else f"{'+' * (gain.value >= 0)}{gain}",
            "-" if gain is None else gain.verdict,
            *(f"{100 * fmean(getattr(run, each) for run in runs):.1f}" for each in ("greedy", "lenient", "pass_at_8")),
            f"{fmean(run.code_ratio for run in runs):.2f}",
            f"{fmean(pass_ratios):.2f}" if pass_ratios else "-",
            *(str(mean_over_seeds(accuracy[name][set_name])) for set_name in ("reworded", "seen")),
        ]
        table.append(f"| {' | '.join(cells)} |")
    return table
