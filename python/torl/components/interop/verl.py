"""A score function for verl: set `custom_reward_function.path` to this file, and its `name` to `compute_score`."""

from typing import Any

from torl.components.interop.shared import score


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
) -> dict[str, float | bool]:
    """Return the score of a solution, 1 if its last box equals the reference and otherwise 0, and its accuracy `acc`.

    Raises:
        RewardError: The grader failed.
    """
    value = score(solution_str, ground_truth)
    return {"score": value, "acc": value > 0}
