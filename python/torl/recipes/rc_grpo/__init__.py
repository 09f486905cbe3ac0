"""RC-GRPO: prompts that ask for a high or a low reward, so that a group has good and bad responses."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torl import PositiveFraction, Problem, PromptVariant, load_template

LINES: Final = ("<|high_reward|>", "<|low_reward|>")


def template(
    problem: Problem,
    lines: tuple[str, str] = LINES,
    high_fraction: PositiveFraction = 0.5,
    template: str = "torl",
) -> Mapping[str, PromptVariant]:
    """Return two prompts of another template, with a line before the question that says which reward is wanted.

    The model must have learned before the run what both lines mean. Evaluations ask for a high reward.

    Args:
        lines: Lines that ask for a high and for a low reward.
        high_fraction: Fraction of the training episodes that ask for a high reward.
        template: Name of the prompt template of both.
    """
    fill = load_template(template)
    high, low = (fill(replace(problem, question=f"{line}\n{problem.question}")) for line in lines)
    return {"high": PromptVariant(high, high_fraction), "low": PromptVariant(low, 1 - high_fraction)}


def asked_examples(path: str, lines: tuple[str, str] = LINES) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield sampled trajectories as examples, each with the line that asks for the reward it got: the first stage.

    Use them with `finetune.prompts = "template"`, which puts the question with its line into the prompt, and with
    `finetune.correct_only = false`.

    Args:
        path: File of `torl sample`.
        lines: Lines before the question of correct and of wrong responses.

    Raises:
        ValueError: `path` is not a file.
    """
    if not Path(path).is_file():  # opening a named pipe would wait
        raise ValueError(f"{path}: not a file")
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            row = json.loads(line)
            line_of_reward = lines[0] if row["correct"] else lines[1]
            yield f"{path}, line {number}", {**row, "question": f"{line_of_reward}\n{row['question']}"}
