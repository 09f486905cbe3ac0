"""One grader for a process that is not torl's: started when it is first asked, from whichever thread."""

import atexit
import threading

from torl.rewards.grader import Grader
from torl.text.answers import find_answer

_lock = threading.Lock()
_shared: list[Grader] = []


def shared_grader() -> Grader:
    """The grader of this process, started.

    Raises:
        RewardError: it does not work.
    """
    with _lock:
        if not _shared:
            grader = Grader()
            grader.start()
            atexit.register(grader.close)
            _shared.append(grader)
    return _shared[0]


def score(response: str, reference: str, *, correct: float = 1.0, wrong: float = 0.0) -> float:
    r"""What a response is worth: `correct` if its last \boxed{...} equals the reference, else `wrong`.

    Raises:
        RewardError: the grader is broken: never a reward.
    """
    answer = find_answer(response)
    right = answer is not None and shared_grader().grade(reference, answer.text).correct
    return correct if right else wrong
