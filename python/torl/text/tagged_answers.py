"""Answers in <answer> tags, and when two texts are the same answer to a question of knowledge."""

import re
import string

_OPENING, _CLOSING = "<answer>", "</answer>"
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def tagged_answer(text: str) -> str | None:
    """What stands in the last complete <answer> tags, without the space around it; None if there are none."""
    *closed, _ = text.split(_CLOSING)
    last = next((piece for piece in reversed(closed) if _OPENING in piece), None)
    return None if last is None else last.partition(_OPENING)[2].strip()


def squad_normalize(text: str) -> str:
    """Lower case, without punctuation (ASCII), articles and repeated space.

    Source: the evaluation of SQuAD (Rajpurkar et al. 2016), as Search-R1 has it (`verl/utils/reward_score/qa_em.py`).
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def is_same_answer(answer: str, reference: str) -> bool:
    """Exact match: whether both are equal once normalized; of a reference of several lines any line may be meant."""
    given = squad_normalize(answer)
    return any(given == squad_normalize(line) for line in reference.splitlines() or [""])
