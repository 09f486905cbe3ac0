"""The commands of `demo.py`, and their settings."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import settings_words
from benchmarks.pretrained.demo_data import PROBLEMS, SYSTEM
from benchmarks.pretrained.demo_table import LABELS, RUNS, SAMPLES, TRAINED

EXAMPLES, WARM_BATCH = 160, 16
PROMPTS_PER_STEP, SAMPLES_PER_PROMPT = 16, 8
TRAINING_PROBLEMS = "torl:demo/problems/train.jsonl"

SAMPLING = {
    "data.template": f'{{ name = "chatml", system = {json.dumps(SYSTEM)} }}',
    "rollout.max_response_tokens": "128",
    "engine.dtype": "float32",
    "engine.cpu_threads": "2",
}
EVALUATION = {"evaluation.samples_per_problem": str(SAMPLES), "evaluation.every_steps": "0"}
LEARNING = {
    "learner.dtype": "float32",
    "learner.max_row_tokens": "1024",
    "checkpoint.every_steps": "4",
    "checkpoint.keep_last": "1",
}
SUPERVISED = {
    "finetune.batch_size": str(WARM_BATCH),
    "learner.learning_rate": "1e-4",
    "learner.warmup_steps": "2",
}
REINFORCED = {
    "rollout.prompts_per_step": str(PROMPTS_PER_STEP),
    "rollout.samples_per_prompt": str(SAMPLES_PER_PROMPT),
    "learner.learning_rate": "3e-5",
    "learner.warmup_steps": "3",
    "algorithm.estimator": "dr_grpo",
    "selection.mask.mismatched_code": "{}",
}
REJECTION = {"finetune.max_per_problem": "4", "finetune.drop.mismatched_code": "{}"}
CONTROLS: Mapping[str, Mapping[str, str]] = {
    "trained": {},
    "no_tool": {"rollout.max_tool_calls": "0"},
    "observations": {"ablation.shuffle": "observations"},
    "rewards": {"ablation.shuffle": "rewards"},
}


@dataclass(frozen=True, slots=True)
class Demo:
    """The commands of the table, as words after `python -m torl`.

    Attributes:
        directory: Directory of all files and runs.
        model: The untouched model.
        steps: Number of updates of each line after the warm start.
    """

    directory: Path
    model: str
    steps: int

    def has_same_settings(self) -> bool:
        """Whether the directory has no runs, or runs of the same commands. Write the commands of the first seed."""
        path = self.directory / "commands.json"
        commands = [self.evaluate_start(), self.sample(0), *(self.train(name, 0) for name in ("warm", *RUNS))]
        text = json.dumps(commands, indent=1) + "\n"
        if path.exists():
            return path.read_text(encoding="utf-8") == text
        self.directory.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return True

    def run(self, name: str, seed: int) -> Path:
        """Return the directory of a run."""
        return self.directory / f"{name}-{seed}"

    def file(self, name: str, seed: int) -> Path:
        """Return the file of the examples, of the samples of rejection sampling, or of those that are kept."""
        return self.directory / "data" / f"{name}-{seed}.jsonl"

    @property
    def problem_files(self) -> dict[str, Path]:
        """The evaluation sets by name."""
        return {name: self.directory / "data" / f"{name}.jsonl" for name in PROBLEMS}

    def evaluate_start(self) -> list[str]:
        """Return the evaluation of the untouched model."""
        sets = [f"{name}={path}" for name, path in self.problem_files.items()]
        words = ["evaluate", f"start={self.model}", "--config", "demo", "--suite", *sets]
        return [*words, "--output", str(self.directory / "start"), *settings_words(SAMPLING | EVALUATION)]

    def sample(self, seed: int) -> list[str]:
        """Return the sampling of the warm-started model, of as many responses as reinforcement learning samples."""
        own = {
            "model.path": str(self.run("warm", seed) / "model"),
            "sample.problems": TRAINING_PROBLEMS,
            "sample.max_problems": str(PROMPTS_PER_STEP * self.steps),
            "sample.samples_per_problem": str(SAMPLES_PER_PROMPT),
            "sample.seed": str(seed),
            "sample.output": str(self.file("samples", seed)),
        }
        return ["sample", "demo", *settings_words(SAMPLING | own)]

    def train(self, name: str, seed: int) -> list[str]:
        """Return the run of a line: fine-tuning for `warm`, `further` and `rejection`, else reinforcement learning."""
        run = {
            **SAMPLING,
            **LEARNING,
            **EVALUATION,
            **{f"data.evaluation.{set_name}": str(path) for set_name, path in self.problem_files.items()},
            "model.path": str(self.run("warm", seed) / "model"),
            "run.seed": str(seed),
            "run.steps": str(self.steps),
            "run.directory": str(self.run(name, seed)),
            "run.note": f"{self.model}: {LABELS[name]}.",
            # Reinforcement learning begins with the model that the others begin with.
            "evaluation.before_training": str(name == TRAINED).lower(),
        }
        if name in CONTROLS:
            return ["train", "demo", *settings_words({**run, **REINFORCED, **CONTROLS[name]})]
        file = self.file("kept" if name == "rejection" else "examples", seed)
        own = SUPERVISED | {"finetune.train": str(file)} | (REJECTION if name == "rejection" else {})
        if name == "warm":
            # Its evaluation is that of reinforcement learning before the first step.
            run = {key: value for key, value in run.items() if not key.startswith("data.evaluation.")}
            own |= {"data.evaluation": "{}", "model.path": self.model, "run.steps": str(EXAMPLES // WARM_BATCH)}
        return ["finetune", "demo", *settings_words({**run, **own})]
