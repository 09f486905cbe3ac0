"""The demo's table: with the tool, without it, and two controls that must not learn, for several seeds.

    python benchmarks/demo_table.py [--seeds 0 1 2] [--output runs/demo_table]

Each row is one `python -m torl.train configs/demo.toml`; runs that are already there are not repeated. Prints the
table in Markdown and, on the last line, everything as JSON.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EVALUATION_SETS = {
    "heldout": "torl:demo/problems/heldout.jsonl",
    "seen": "torl:demo/problems/seen.jsonl",
    "three_step": "torl:demo/problems/three_step.jsonl",
}
VARIANTS = {
    "tool (C = 1)": [],
    "no tool (C = 0)": ["--rollout.max_tool_calls", "0"],
    "control: observations shuffled": ["--control.shuffle_observations"],
    "control: rewards shuffled": ["--control.shuffle_rewards"],
}
MEASURES = ("accuracy", "greedy_accuracy", "code_ratio", "pass_ratio")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("runs/demo_table"))
    arguments = parser.parse_args()
    results: dict[str, list[dict[str, object]]] = {}
    for seed in arguments.seeds:  # all variants of a seed first: a table that is cut short is still whole
        for variant, options in VARIANTS.items():
            directory = arguments.output / f"{variant.translate(str.maketrans(' ', '_', '():='))}_seed{seed}"
            results.setdefault(variant, []).append(run(directory, seed, options))
    for name in EVALUATION_SETS:
        print(f"\n{name}: base → trained, mean over {len(arguments.seeds)} seeds [lowest, highest]\n")
        print(f"| run | {' | '.join(measure.replace('_', ' ') for measure in MEASURES)} |")
        print("|---" * (len(MEASURES) + 1) + "|")
        for variant, summaries in results.items():
            print(f"| {variant} | {' | '.join(cell(summaries, name, measure) for measure in MEASURES)} |")
    print()
    print(json.dumps(results))


def run(directory: Path, seed: int, options: list[str]) -> dict[str, object]:
    """Train once, or read what an earlier call trained."""
    summary = directory / "summary.json"
    if not summary.exists():
        evaluation = [word for name, path in EVALUATION_SETS.items() for word in (f"--data.evaluation.{name}", path)]
        command = [sys.executable, "-m", "torl.train", str(ROOT / "configs" / "demo.toml")]
        command += ["--run.directory", str(directory), "--run.seed", str(seed), *evaluation, *options]
        command += ["--evaluation.every_steps", "0"]
        print(" ".join(command[1:]), file=sys.stderr, flush=True)
        subprocess.run(command, check=True, stdout=sys.stderr)
    loaded: dict[str, object] = json.loads(summary.read_text())
    return loaded


def cell(summaries: list[dict[str, object]], name: str, measure: str) -> str:
    before, after = ([float(s["evaluation"][name][f"{measure}_{when}"]) for s in summaries] for when in ("before", "after"))  # type: ignore[index]
    spread = f"[{min(after):.2f}, {max(after):.2f}]"
    return f"{statistics.mean(before):.2f} → **{statistics.mean(after):.2f}** {spread}"


if __name__ == "__main__":
    main()
