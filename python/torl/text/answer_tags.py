r"""The formats of a response that papers reward: \boxed{...} between <answer> tags."""

import re
from typing import Literal

from torl.text.answers import find_answer

AnswerFormat = Literal["orz", "zerotir"]
"""Whose rule: Open-Reasoner-Zero's (`orz_7b_ppo.py`), or ZeroTIR's (`zero_tir_template_format_score_fn`)."""

_TAGS = ("</think>", "<answer>", "</answer>")
_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")
_MAX_AFTER = 5


def has_format(text: str, format: AnswerFormat) -> bool:
    r"""Whether a response is in the format.

    "orz": a complete box stands between the first ``<answer>`` and the last ``</answer>``. "zerotir": besides, each of
    ``</think>``, ``<answer>`` and ``</answer>`` stands there exactly once and in this order (what comes before
    ``</think>`` is not graded there), and after the last come at most five words or marks, where ZeroTIR's code counts
    five tokens.

    Args:
        text: the sampled text of a response.
        format: whose rule.
    """
    if format == "zerotir":
        after = text.rpartition("</answer>")[2]
        if any(text.count(tag) != 1 for tag in _TAGS) or len(_WORD_OR_MARK.findall(after)) > _MAX_AFTER:
            return False
        text = text.partition("</think>")[2]
    _, _, rest = text.partition("<answer>")
    answer, closed, _ = rest.rpartition("</answer>")
    return bool(closed) and find_answer(answer) is not None
