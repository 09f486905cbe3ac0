"""A score function for verl: set `custom_reward_function.path` to this file, and its `name` to `compute_score`.

Its grader is also the grader of TRL's reward function (`torl.components.interop.trl`): one for each process, started by
the first use in any thread.
"""

import atexit
import threading
from typing import Any

from torl.components.data.values import plain, read_alternatives, read_answer, read_texts
from torl.components.grading.grader import Grader
from torl.components.text.answers import find_answer

_lock = threading.Lock()
_shared: list[Grader] = []


def shared_grader() -> Grader:
    """Return the running grader of this process.

    Raises:
        RewardError: The grader does not start.
    """
    with _lock:
        if not _shared:
            grader = Grader()
            grader.start()
            atexit.register(grader.close)
            _shared.append(grader)
    return _shared[0]


def score(response: str, reference: Any) -> float:
    r"""Return the reward of a response: 1 if its last \boxed{...} equals the reference, else 0.

    Args:
        response: Text of the response.
        reference: Value of the dataset: a text, a number, a list, or the object of several right answers that verl
            has under "target".

    Raises:
        RewardError: The grader failed.
        InvalidRowError: The reference is not an answer.
    """
    answer = find_answer(response)
    if answer is None:
        return 0.0
    if not isinstance(reference, str):
        reference = read_answer("the reference", plain(reference))  # lists of a parquet file are arrays of numpy
    elif (texts := read_texts(reference)) is not None:
        reference = read_alternatives("the reference", texts)
    return float(shared_grader().grade(reference, answer.text).correct)


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
) -> dict[str, float | bool]:
    """Return the score of a solution, 1 if its last box equals the reference and otherwise 0, and its accuracy `acc`.

    Raises:
        RewardError: The grader failed.
    """
    value = score(solution_str, ground_truth)
    return {"score": value, "acc": value > 0}
