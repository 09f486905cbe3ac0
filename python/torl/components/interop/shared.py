"""A grader for the trainers of other libraries: one for each process, started by the first use in any thread."""

import atexit
import threading
from typing import Any

from torl.components.data.values import read_alternatives, read_answer, read_texts
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


def score(response: str, reference: Any, *, correct: float = 1.0, wrong: float = 0.0) -> float:
    r"""Return the reward of a response: `correct` if its last \boxed{...} equals the reference, else `wrong`.

    Args:
        response: Text of the response.
        reference: Value of the dataset: a text, a number, a list, or the object of several right answers that verl
            has under "target".
        correct: Reward of a correct answer.
        wrong: Reward of a wrong or missing answer.

    Raises:
        RewardError: The grader failed.
        InvalidRowError: The reference is not an answer.
    """
    answer = find_answer(response)
    is_correct = answer is not None and shared_grader().grade(_as_text(reference), answer.text).correct
    return correct if is_correct else wrong


def _as_text(reference: Any) -> str:
    if isinstance(reference, str):
        texts = read_texts(reference)
        return reference if texts is None else read_alternatives("the reference", texts)
    return read_answer("the reference", _plain(reference))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    value = value.tolist() if hasattr(value, "tolist") else value  # lists of a parquet file are arrays of numpy
    return list(value) if isinstance(value, tuple) else value
