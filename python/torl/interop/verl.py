"""A score function as verl takes it: this file as `custom_reward_function.path`, and `compute_score` as its `name`."""

from typing import Any

from torl.interop.shared import score


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any
) -> dict[str, float | bool]:
    """1 for a solution whose last box equals the reference, 0 for others; `acc` says whether it does.

    Raises:
        RewardError: the grader is broken.
    """
    value = score(solution_str, str(ground_truth))
    return {"score": value, "acc": value > 0}
