r"""The last complete \boxed{...}, against cases worked out by hand."""

import pytest

from torl.components.text.answers import find_answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{5}.", "5"),
        (r"first \boxed{5}, then \boxed{6}", "6"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {7}", "7"),
        (r"\boxed{ 8 }", "8"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{x = \boxed{5}}", "5"),
        (r"\boxed{5} and \boxed{6", "5"),
        (r"\boxed{1 + \boxed{2}", "2"),
        (r"\boxed{}", ""),
        (r"{ } } \boxed{3} }", "3"),
        (r"a stray { before \boxed{4}", "4"),
        ("\\boxed{1\n2}", "1\n2"),
        ('print("\\\\boxed{9}")', "9"),
        (r"\\\boxed{10}", "10"),
        (r"\boxed{五}", "五"),
        (r"\boxed{5\\}", r"5\\"),
    ],
)
def test_last_complete_box(text: str, expected: str) -> None:
    answer = find_answer(text)
    assert answer is not None
    assert answer.text == expected


@pytest.mark.parametrize(
    "text",
    ["", "5", r"\boxed 5", r"\fbox{5}", r"\boxed{5", r"boxed{5}", r"\boxed{5\}", r"\unboxed{5}", r"\boxed", "\\"],
)
def test_no_box(text: str) -> None:
    assert find_answer(text) is None


def test_the_place_is_that_of_the_whole_box() -> None:
    text = r"so \boxed{5} it is"
    answer = find_answer(text)
    assert answer is not None
    assert text[answer.start : answer.stop] == r"\boxed{5}"


@pytest.mark.parametrize(
    "text",
    [r"\boxed{" * 50_000, "{" * 300_000 + r"\boxed{5}", r"\boxed" + " " * 300_000, "\\" * 300_000, "}" * 300_000],
)
def test_hostile_text_takes_linear_time(text: str) -> None:
    """Quadratic time would take hours, and the limit of a test is minutes."""
    find_answer(text)
