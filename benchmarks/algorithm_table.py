"""The demo trained by every algorithm, in both formats, with 0 to 4 calls: the small twin of each preset, and a table.

    python benchmarks/algorithm_table.py [ROW ...] [--seeds 0] [--steps 25] [--markdown FILE]

Each row is one `python -m torl.train demo` with the overrides below. Runs that are already there are not
repeated, so that a table can be cut short and resumed; the table contains all finished runs of all rows.
Accuracy is over the first 128 held-out problems, four samples each at temperature 1; its error bar is the standard
error over problems (the samples of one problem are not independent). Prints the table in Markdown and, on the last
line, everything as JSON.
"""

import argparse
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean as mean

from demo_table import train

from torl.records import metric_names as names
from torl.records.files import evaluation_files
from torl.records.reading import read_metrics, read_trajectories

PROBLEMS, SAMPLES = 128, 4
SETTINGS = {
    "rollout.max_response_tokens": 192,  # room for several calls
    "learner.learning_rate": 2e-4,
    "evaluation.every_steps": 0,
    "evaluation.max_problems": PROBLEMS,
    "evaluation.samples_per_problem": SAMPLES,
    "evaluation.greedy": False,
    "checkpoint.every_steps": 0,
}
Overrides = dict[str, str | int | float | bool]

ALGORITHMS: dict[str, Overrides] = {
    "grpo": {},
    "dr_grpo": {
        "algorithm.estimator": "dr_grpo",
        "algorithm.aggregation.name": "fixed_length",
        "algorithm.aggregation.length": 192,
    },
    "rloo": {"algorithm.estimator": "rloo"},
    "reinforce_plus_plus": {
        "algorithm.estimator": "reinforce_plus_plus",
        "selection.drop_zero_variance_groups": False,
    },
    "reinforce_plus_plus_baseline": {
        "algorithm.estimator": "reinforce_plus_plus_baseline",
        "selection.drop_zero_variance_groups": False,
    },
    "ppo": {
        "algorithm.estimator": "ppo",
        "algorithm.normalize_advantages": True,
        "selection.drop_zero_variance_groups": False,
        "critic.learning_rate": 1e-3,
        "critic.mini_batches": 4,
        "critic.pretrain_steps": 2,
    },
    "dapo": {
        "selection.drop_zero_variance_groups": False,
        "selection.accuracy_range": "[0.0, 1.0]",
        "selection.dynamic_sampling": True,
        "selection.max_rounds": 4,
        "reward.parts.length.name": "overlong",
        "reward.parts.length.buffer": 32,
        "algorithm.policy_loss.clip_high": 0.28,
        "algorithm.mini_batches": 2,
    },
    "gspo": {
        "algorithm.policy_loss.name": "gspo",
        "algorithm.aggregation": "sequence",
        "algorithm.mini_batches": 2,
    },
    "cispo": {
        "algorithm.policy_loss.name": "cispo",
        "algorithm.policy_loss.clip_low": 1.0,
        "algorithm.policy_loss.clip_high": 0.28,
        "algorithm.mini_batches": 2,
    },
    "dppo": {"algorithm.policy_loss.name": "dppo", "algorithm.mini_batches": 2},
    "sapo": {"algorithm.policy_loss.name": "sapo", "algorithm.aggregation": "sequence", "algorithm.mini_batches": 2},
    "vespo": {"algorithm.policy_loss.name": "vespo", "algorithm.mini_batches": 2},
    "gmpo": {"algorithm.policy_loss.name": "gmpo", "algorithm.aggregation": "sequence", "algorithm.mini_batches": 2},
    "luspo": {
        "algorithm.policy_loss.name": "gspo",
        "algorithm.aggregation.name": "fixed_length",
        "algorithm.aggregation.length": 1,
        "algorithm.mini_batches": 2,
    },
    "sequence_masked": {
        "algorithm.policy_loss.name": "sequence_masked",
        "algorithm.policy_loss.threshold": 0.1,
        "algorithm.mini_batches": 2,
    },
    "clip_cov": {
        "algorithm.policy_loss.name": "clip_cov",
        "algorithm.policy_loss.share": 0.02,
        "algorithm.mini_batches": 2,
    },
    "kl_cov": {
        "algorithm.policy_loss.name": "kl_cov",
        "algorithm.policy_loss.share": 0.02,
        "algorithm.mini_batches": 2,
    },
    "high_entropy": {"algorithm.policy_loss.name": "high_entropy"},
    "maxrl": {"algorithm.estimator": "maxrl", "reward.parts.answer.wrong": 0.0},
    "gdpo": {
        "algorithm.estimator": "gdpo",
        "reward.parts.length.name": "overlong",
        "reward.parts.length.buffer": 32,
        "selection.drop_zero_variance_groups": False,
    },
    "aspo": {"algorithm.estimator": "aspo"},
    "adatir": {
        "algorithm.estimator.name": "adatir",
        "algorithm.estimator.max_calls": 1,
        "selection.drop_zero_variance_groups": False,  # groups without a wrong answer are the easy ones
    },
    "roc": {
        "rollout.samples_per_prompt": 16,
        "selection.members.roc.name": "resample_on_correct",
        "selection.members.roc.count": 8,
    },
    "echo": {"algorithm.imitation.name": "observations", "algorithm.imitation.weight": 0.1},
    "echo_shuffled": {
        "algorithm.imitation.name": "observations",
        "algorithm.imitation.weight": 0.1,
        "ablation.shuffle_observations": True,
    },
    "opsd": {
        "algorithm.estimator": "distillation",
        "algorithm.kl.current_policy": True,
        "algorithm.kl.prompt": "torl.recipes.sdpo:with_answer",
        "selection.drop_zero_variance_groups": False,  # rewards are not used
    },
    "sdpo": {
        "algorithm.estimator": "distillation",
        "algorithm.kl.current_policy": True,
        "algorithm.kl.prompt": "torl.recipes.sdpo:with_feedback",
        "selection.drop_zero_variance_groups": False,
    },
    "shuffled_rewards": {"ablation.shuffle_rewards": True},
    "shuffled_observations": {"ablation.shuffle_observations": True},
}


LABELS = {
    "grpo": "GRPO",
    "dr_grpo": "Dr. GRPO",
    "rloo": "RLOO",
    "reinforce_plus_plus": "REINFORCE++",
    "reinforce_plus_plus_baseline": "REINFORCE++-baseline",
    "ppo": "PPO",
    "dapo": "DAPO",
    "gspo": "GSPO",
    "cispo": "CISPO",
    "dppo": "DPPO",
    "sapo": "SAPO",
    "vespo": "VESPO",
    "gmpo": "GMPO",
    "luspo": "LUSPO",
    "sequence_masked": "DeepSeek-V3.2's sequence mask",
    "clip_cov": "Clip-Cov",
    "kl_cov": "KL-Cov",
    "high_entropy": "the fifth of highest entropy",
    "maxrl": "MaxRL",
    "gdpo": "GDPO",
    "aspo": "ASPO",
    "adatir": "AdaTIR",
    "roc": "GRPO-RoC, 16 samples of which 8 are learned from",
    "echo": "ECHO",
    "echo_shuffled": "ECHO, observations of other calls",
    "opsd": "OPSD",
    "sdpo": "SDPO",
    "shuffled_rewards": "GRPO, rewards of other responses",
    "shuffled_observations": "GRPO, observations of other calls",
}

ROWS: dict[str, tuple[str, Overrides]] = {
    **{name: (LABELS[name], overrides) for name, overrides in ALGORITHMS.items()},
    "grpo_2_updates": ("GRPO, two updates a step", {"algorithm.mini_batches": 2}),  # as dapo, gspo and cispo make
    "no_calls": ("GRPO, C = N = 0: the formats are one", {"rollout.max_tool_calls": 0}),
    **{f"torl_{calls}": (f"GRPO, C = {calls}", {"rollout.max_tool_calls": calls}) for calls in (2, 4)},
    **{
        f"zerotir_{calls}": (
            f"GRPO, ZeroTIR's format, N = {calls}",
            {"rollout.format": "zerotir", "rollout.max_tool_calls": calls},
        )
        for calls in (1, 2, 4)
    },
    **{
        f"torl_{calls}_{name}": (f"GRPO, C = {calls}, {what}", {"rollout.max_tool_calls": calls, **overrides})
        for calls in (1, 2)
        for name, what, overrides in (
            (
                "penalty",
                "-0.5 for failed code",
                {"reward.parts.failed_code.name": "failed_code", "reward.parts.failed_code.weight": -0.5},
            ),
            ("hidden", "errors hidden", {"rollout.format.error_style": "hidden"}),
        )
    },
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One finished run."""

    correct: dict[str, list[bool]]  # of each held-out problem, after training
    accuracy_before: float
    accuracy: float
    code_ratio: float
    calls: float
    pass_ratio: float | None
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", metavar="ROW", nargs="*", help=f"which to train; all unless given: {', '.join(ROWS)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--output", type=Path, default=Path("runs/algorithm_table"))
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    for seed, name in product(options.seeds, options.rows or ROWS):
        directory = options.output / f"{name}_seed_{seed}"
        train(directory, {"run.seed": seed, "run.steps": options.steps, **SETTINGS, **ROWS[name][1]})
    found = {name: runs for name in ROWS if (runs := finished(options.output, name))}
    table = "\n".join(lines(found))
    print(table)
    if options.markdown is not None:
        options.markdown.write_text(table + "\n", encoding="utf-8")
    print(json.dumps({name: [as_json(run) for run in runs] for name, runs in found.items()}))


def finished(output: Path, name: str) -> list[Measured]:
    """The finished runs of a row, by seed."""
    summaries = sorted(output.glob(f"{name}_seed_[0-9]*/summary.json"))
    return [measured(path.parent) for path in summaries]


def measured(directory: Path) -> Measured:
    """The results in the records of a run."""
    correct: defaultdict[str, list[bool]] = defaultdict(list)
    for record in read_trajectories(evaluation_files(directory)["heldout"][-1]):
        correct[record.trajectory.prompt.problem.id].append(record.grade.correct)
    rows = [row for row in read_metrics(directory) if f"evaluation/heldout/{names.ACCURACY}" in row]
    after = {name.removeprefix("evaluation/heldout/"): value for name, value in rows[-1].items()}
    return Measured(
        correct=dict(correct),
        accuracy_before=rows[0][f"evaluation/heldout/{names.ACCURACY}"],
        accuracy=after[names.ACCURACY],
        code_ratio=after[names.CODE_RATIO],
        calls=after[names.CALLS_PER_TRAJECTORY],
        pass_ratio=after.get(names.PASS_RATIO),
        seconds=json.loads((directory / "summary.json").read_text())["train_seconds"],
    )


def as_json(run: Measured) -> dict[str, float | None]:
    """The numbers of a run, without the single problems."""
    return {name: value for name, value in asdict(run).items() if name != "correct"}


def standard_error(runs: Sequence[Measured]) -> float:
    """The standard error of the mean accuracy over problems; samples of one problem, of all seeds, are one cluster."""
    problems = [mean(right for run in runs for right in run.correct[name]) for name in runs[0].correct]
    return statistics.stdev(problems) / math.sqrt(len(problems))


def lines(found: dict[str, list[Measured]]) -> list[str]:
    """The table. A difference from GRPO is bold where it is more than twice its own standard error."""
    table = [
        "| row | seeds | accuracy, base → trained | from GRPO | code ratio | calls | pass ratio | seconds |",
        "|---" * 8 + "|",
    ]
    for name, runs in found.items():
        passes = [run.pass_ratio for run in runs if run.pass_ratio is not None]
        cells = [
            ROWS[name][0],
            str(len(runs)),
            f"{mean(run.accuracy_before for run in runs):.2f} → {accuracy(runs)}",
            "-" if runs is found.get("grpo") or "grpo" not in found else difference(runs, found["grpo"]),
            f"{mean(run.code_ratio for run in runs):.2f}",
            f"{mean(run.calls for run in runs):.2f}",
            f"{mean(passes):.2f}" if passes else "-",
            f"{mean(run.seconds for run in runs):.0f}",
        ]
        table.append(f"| {' | '.join(cells)} |")
    return table


def accuracy(runs: Sequence[Measured]) -> str:
    """Mean, standard error, and the range over seeds."""
    values = [run.accuracy for run in runs]
    spread = f" [{min(values):.2f}, {max(values):.2f}]" if len(values) > 1 else ""
    return f"{mean(values):.2f} ± {standard_error(runs):.2f}{spread}"


def difference(runs: Sequence[Measured], grpo: Sequence[Measured]) -> str:
    """Accuracy less GRPO's; its error is made of both rows' own and of how far GRPO's seeds lie apart."""
    found = mean(run.accuracy for run in runs) - mean(run.accuracy for run in grpo)
    of_seeds = statistics.stdev(run.accuracy for run in grpo) if len(grpo) > 1 else 0.0
    error = math.hypot(standard_error(runs), standard_error(grpo), of_seeds * math.sqrt(1 / len(runs) + 1 / len(grpo)))
    return f"**{found:+.2f}**" if abs(found) > 2 * error else f"{found:+.2f}"


if __name__ == "__main__":
    main()
