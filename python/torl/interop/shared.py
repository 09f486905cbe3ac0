"""A grader for the trainers of other libraries: one for each process, started by the first use in any thread."""

import atexit
import threading

from torl.rewards.grader import Grader
from torl.text.answers import find_answer

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


def score(response: str, reference: str, *, correct: float = 1.0, wrong: float = 0.0) -> float:
    r"""Return the reward of a response: `correct` if its last \boxed{...} equals the reference, else `wrong`.

    Raises:
        RewardError: The grader failed.
    """
    answer = find_answer(response)
    is_correct = answer is not None and shared_grader().grade(reference, answer.text).correct
    return correct if is_correct else wrong
