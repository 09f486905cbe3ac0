"""RC-GRPO: prompts that ask for a high or a low reward, so that a group has good and bad responses."""

from collections.abc import Mapping
from dataclasses import replace

from torl import PositiveFraction, Problem, PromptVariant, load_template


def template(
    problem: Problem,
    high: str = "<|high_reward|>",
    low: str = "<|low_reward|>",
    high_fraction: PositiveFraction = 0.5,
    template: str = "torl",
) -> Mapping[str, PromptVariant]:
    """Return two prompts of another template, with a line before the question that says which reward is wanted.

    The model must have learned before the run what both lines mean. Evaluations ask for a high reward.

    Args:
        high: Line that asks for a high reward.
        low: Line that asks for a low reward.
        high_fraction: Fraction of the training episodes that ask for a high reward.
        template: Name of the prompt template of both.
    """
    fill = load_template(template)
    return {
        "high": PromptVariant(fill(replace(problem, question=f"{high}\n{problem.question}")), high_fraction),
        "low": PromptVariant(fill(replace(problem, question=f"{low}\n{problem.question}")), 1 - high_fraction),
    }
