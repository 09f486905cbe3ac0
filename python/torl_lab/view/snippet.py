"""A trajectory as a test for pytest: its answer is found and graded as in the record."""

from collections.abc import Mapping
from typing import Any, Final

from torl.components.text.answers import find_answer

_TEMPLATE: Final = '''"""{location}"""

import torl
from torl.components.text.answers import find_answer

RESPONSE = {response!r}


def test_answer_is_found_and_graded_as_recorded() -> None:
    answer = find_answer(RESPONSE)
    assert answer is not None
    assert answer.text == {answer!r}
    with torl.Grader() as grader:
        assert grader.grade({reference!r}, answer.text).correct is {correct}
'''


def pytest_source(row: Mapping[str, Any], location: str) -> str | None:
    """Return the source of a test; None for a response without a boxed answer, or graded by another text."""
    found = find_answer(row["sampled_text"])
    if found is None or found.text != row.get("answer"):
        return None
    return _TEMPLATE.format(
        location=location.replace("\\", "/").replace('"', "'"),
        response=row["sampled_text"],
        answer=found.text,
        reference=row["reference_answer"],
        correct=bool(row["correct"]),
    )
