"""The shortcuts of the grader never contradict math-verify, and what must hold of the comparison itself."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torl.components.grading import worker
from torl.components.grading.equivalence import UndecidedError, equivalent
from torl.components.grading.verdict import compare_exactly

_ANSWERS = [
    "5", "-3", "0", "3159", "\\frac{14}{3}", "\\left( 3, \\frac{\\pi}{2} \\right)", "p - q", "(-\\infty, 2]",
    "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\text{Evelyn}", "2\\sqrt{3}", "6 - 5i", "x^2 + 7x + 10", "\\pi",
    "1,3,9,11", "$(3,2),(-3,2),(3,-2),(-3,-2)$", "$f(x)=x$,$f(x)=2-x$", "17.5%", "90^\\circ", "11\\sqrt2",
    "\\$32,\\!348", "a + b + c", "\\sin^2 t", "4210_5", "\\frac{3}{4} \\text{ cm}", "$M=2^{N-2}+1$", "$k \\geqslant 2$",
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.integers(-(10**30) + 1, 10**30 - 1), st.integers(-(10**30) + 1, 10**30 - 1))
def test_integers_are_judged_as_math_verify_judges_them(reference: int, answer: int) -> None:
    for other in (answer, reference, reference + 1, -reference):
        if abs(other) >= 10**30:
            continue
        verdict = compare_exactly(str(reference), str(other))
        assert verdict is not None
        assert verdict.correct == (reference == other) == equivalent(str(reference), str(other))


_INTEGERS, _DENOMINATORS = st.integers(-(10**9), 10**9) | st.integers(-30, 30), st.integers(1, 60)


def notations(number: Fraction) -> list[str]:
    """Spellings of a number in a page or by a program, exact or rounded."""
    sign, over, under = "-" * (number < 0), abs(number.numerator), number.denominator
    exact = [f"{sign}\\frac{{{over}}}{{{under}}}", f"{sign}\\dfrac{{{2 * over}}}{{{2 * under}}}", str(number)]
    return [
        *exact,
        f"{over * (1 - 2 * (number < 0))}/{under}",
        repr(float(number)),
        f"{float(number):.3f}",
        f"{float(number):g}",
    ]


@settings(max_examples=30, deadline=None)
@given(_INTEGERS, _DENOMINATORS, _INTEGERS, _DENOMINATORS, st.data())
def test_rational_numbers_are_judged_as_math_verify_judges_them(
    one: int, under: int, other: int, below: int, data: st.DataObject
) -> None:
    """The same number in two notations, exactly or rounded, and another number."""
    number = Fraction(one, under)
    reference = data.draw(st.sampled_from(notations(number)))
    for answer in (data.draw(st.sampled_from(notations(each))) for each in (number, number, Fraction(other, below))):
        verdict = compare_exactly(reference, answer)
        assert verdict is None or verdict.correct is equivalent(reference, answer), (reference, answer)


@pytest.mark.parametrize(
    ("reference", "answer", "correct"),
    [
        ("\\frac{1}{2}", "0.5", True), ("\\frac{1}{2}", "1/2", True), ("100000", "1e5", True), ("5", "5.0", True),
        ("0.00001", "1e-05", True), ("3/4", "0.25", False), ("-\\frac{3}{4}", "3/4", False), ("1/3", "0.333", None),
        ("0.1", "0.1000001", None), ("1/0", "5", None), ("5", "0" * 50 + "5", None),
    ],
)  # fmt: skip
def test_numbers_need_no_mathematics_unless_they_are_close(reference: str, answer: str, correct: bool | None) -> None:
    verdict = compare_exactly(reference, answer)
    assert (None if verdict is None else verdict.correct) is correct


@pytest.mark.parametrize("answer", _ANSWERS)
def test_equal_text_is_equal_to_math_verify(answer: str) -> None:
    verdict = compare_exactly(f" {answer}", f"{answer}\n")
    assert verdict is not None
    assert verdict.correct
    assert equivalent(answer, answer)


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("\\frac{1}{2}", "\\frac12"),
        ("5", "x = 5"),
        ("a + b + c", "c+b+a"),
        ("\\sin^2 t", "\\sin^{2}(t)"),
        ("2\\sqrt{3}", "\\sqrt{12}"),
        ("1,3,9", "9, 3, 1"),
        ("5", "5\\text{ cm}"),
        ("17.5%", "17.5\\%"),
        ("(x+1)^2", "x^2+2x+1"),
        ("\\frac{\\ln 2}{3}", "log(2)/3"),
        ("2\\ln(3)", "2*math.log(3)"),
    ],
)
def test_equal_in_another_form(reference: str, answer: str) -> None:
    assert compare_exactly(reference, answer) is None
    assert equivalent(reference, answer)


def test_reference_decides_between_equation_and_value() -> None:
    """As math-verify has it: the value of an equation is right, a value instead of an equation is not."""
    assert equivalent("25", "x^2+y^2=25")
    assert not equivalent("x^2+y^2=25", "25")


def test_an_interval_and_its_inequality_are_equal_in_both_directions() -> None:
    assert equivalent("1<x<2", "x\\in(1,2)")
    assert equivalent("x\\in(1,2)", "1<x<2")


@pytest.mark.parametrize(("reference", "answer"), [("7", "007"), ("007", "7"), ("-7", "-07"), ("0", "00")])
def test_zeros_in_front_of_an_integer_are_left_to_mathematics(reference: str, answer: str) -> None:
    assert compare_exactly(reference, answer) is None
    assert equivalent(reference, answer)


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("\\frac{1}{2}", "\\frac{1}{3}"),
        ("a + b + c", "a + b"),
        ("a + b + c", "a + x"),
        ("\\sin^2 t", "\\sin^2 x"),
        ("1,3,9", "1,3"),
        ("5", "5 or 6"),
        ("5", "\\frac{1}{0}"),
        ("\\text{Evelyn}", "Carla"),
        ("(1, 2)", "(2, 1)"),
    ],
)
def test_not_equal(reference: str, answer: str) -> None:
    assert not equivalent(reference, answer)


def test_a_comparison_that_fails_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> bool:
        raise TypeError("Invalid comparison")

    monkeypatch.setattr("torl.components.grading.equivalence.same", broken)
    with pytest.raises(UndecidedError, match="TypeError: Invalid comparison"):
        equivalent("\\sqrt{2}", "\\sqrt{3}")


def test_an_unexpected_exception_does_not_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> list[object]:
        raise ValueError("Non-real intervals are not supported")

    monkeypatch.setattr("torl.components.grading.equivalence.read", broken)
    reply = worker._grade("\\frac{1}{9}", "(0, k)", 60.0, exact=False)
    assert reply == {"correct": False, "error": "ValueError: Non-real intervals are not supported"}


@pytest.mark.parametrize("pair", [("", "5"), ("5", ""), ("5", " "), ("5", "9" * 100_000)])
def test_decided_without_a_process_as_wrong(pair: tuple[str, str]) -> None:
    verdict = compare_exactly(*pair)
    assert verdict is not None
    assert not verdict.correct
    assert verdict.failure is None


def test_a_long_reference_may_have_a_long_answer() -> None:
    assert compare_exactly("x + " * 1000 + "1", "1" + " + x" * 1000) is None
