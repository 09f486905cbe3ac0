"""Answers of multiple choice, booleans, numbers in words and column vectors; and decimals as exact numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torl.base.types import ALTERNATIVE
from torl.components.grading.equivalence import UndecidedError, equivalent
from torl.components.grading.notation import split_choice
from torl.components.grading.numerals import number_of_words
from torl.components.grading.verdict import compare_exactly


def judged(reference: str, answer: str, *, exact: bool = False) -> bool:
    """The verdict of the grader: text and rational numbers first, then math-verify."""
    verdict = compare_exactly(reference, answer, exact=exact)
    if verdict is not None:
        return verdict.correct
    try:
        return equivalent(reference, answer, exact=exact)
    except UndecidedError:
        return False


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("C", "\\text{(C) }12"), ("\\text{(C) }12", "C"), ("\\text{(C) }12", "12"), ("C", "C. 12"), ("C", "C) 12"),
        ("\\textbf{(B)}\\ 7", "7"), ("\\textbf{(B)}\\ 7", "B"), ("\\textbf{(B)}\\ 7", "(B) 7.0"),
        ("12", "\\textbf{(A) }12"), ("12", "(A) 12.0"), ("\\frac12", "C. $0.5$"),
        ("B", "$\\mathrm{(B)}$"),
        ("C", "c"), ("C", "(c)"), ("C", "c)"), ("C", "c."), ("C", "$c$"), ("C", "\\text{c}"), ("C", "\\textbf{(c)}"),
        ("(C)", "c"), ("\\text{(C)}", "\\mathrm{c}"), ("\\text{(C) }12", "(c)"), ("(D) c", "c"), ("E", "e"), ("I", "i"),
        ("D", "(D)"), ("D", "D) the area of the lake"), ("\\text{D}", "D."), ("5", "\\boldsymbol{5}"),
        ("True", "true"), ("true", "\\text{True}"), ("False", "false."), ("Yes", "yes"), ("odd", "\\text{Odd}"),
        ("\\text{Sunday}", "sunday"), ("\\text{sunday}", "SUNDAY"), ("Evelyn", "evelyn"), ("\\text{Red}", "red"),
        ("\\text{June 20}", "june 20"), ("\\text{Ann, Beth}", "ann, beth"), ("\\text{No}", "no"),
        ("4", "four"), ("four", "4"), ("42", "forty-two"), ("1200", "\\text{one thousand two hundred}"),
        ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "(1,2)"), ("(1,2)", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"),
        ("\\begin{pmatrix} -2 \\\\ -14 \\\\ -7 \\end{pmatrix}", "[-2, -14, -7]"), ("(1,2)", "Matrix([[1], [2]])"),
        ("\\begin{pmatrix} \\frac12 \\\\ 2 \\end{pmatrix}", "\\langle 0.5, 2\\rangle"),
        ("\\begin{bmatrix} 1 \\\\ 2 \\\\ \\end{bmatrix}", "\\left( 1, 2 \\right)"),
        ("\\text{A,C,F}", "A,C,F"), ("\\text{A,C,F}", "A, C, F"), ("A,C,F", "\\text{A, C, F}"),
        ("\\text{June 20}", "June 20"), ("10\\text{:}30", "10:30"), ("6, 8\\text{, and }10", "6,8,10"),
        ("6, 8\\text{, and }10", "\\{6,8,10\\}"), ("6, 8\\text{, and }10", "6, 8, \\text{ and } 10"),
        ("6, 8, and 10", "10,8,6"), ("37", "\\underline{37}"), ("37", "$\\color{red}{37}$"),
        ("\\frac12", "\\textcolor{blue}{\\frac{2}{4}}"), ("-\\frac{7}{12}", "\\mathbf{-\\frac{7}{12}}"),
        ("(\\frac{\\sqrt{2}}{2}, 1)", "\\boldsymbol{\\left(\\frac{\\sqrt{2}}{2}, 1\\right)}"), ("B", "\\mathbf{(B)}"),
        ("650", "\\Large 650"), ("-128", "= -128"), ("668", "\\approx 668"), ("650", "\\, 650 \\,"), ("5", "5\\quad"),
        ("12\\text{ and }13", "12\\textrm{ and }13"), ("-12 \\text{ or } -30", "-12 \\mbox{ or } -30"),
    ],
)  # fmt: skip
def test_same_answer_in_another_form(reference: str, answer: str) -> None:
    assert judged(reference, answer)


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("C", "\\text{(D) }12"), ("\\text{(C) }12", "13"), ("\\text{(C) }12", "(C) 13"), ("\\text{(C) }12", "(D) 12"),
        ("B", "(B) or (C)"), ("B", "A"), ("A", "A or B"), ("C", "(C) is wrong"), ("C", "C. no"), ("C", "12"),
        ("C", "d"), ("C", "(d)"), ("C", "2c"), ("C", "c+1"), ("C", "c^2"), ("C", "c or d"), ("C", "(c), (d)"),
        ("C", "(c"),
        ("C", "not c"), ("C", "cc"), ("K", "k"), ("2C", "2c"), ("A, C", "a, c"), ("\\text{(C) }12", "d"), ("c", "d"),
        ("C", "C+1"), ("C", "\\text{(C)} D"), ("B", "(B) 7, (C) 8"),
        ("12", "\\textbf{(A) }13"), ("12", "(A) 12 or (B) 13"), ("12", "(A) not 12"), ("12", "(A) 3, (B) 12"),
        ("True", "false"), ("Yes", "No"), ("odd", "even"), ("Yes", "true"), ("\\text{Sunday}", "monday"),
        ("ABC", "abc"), ("Mgh", "mgh"), ("\\text{R}", "r"), ("3R^2\\text{ cm}", "3r^2 cm"), ("true", "1"),
        ("4", "five"), ("4", "four or five"), ("24", "twenty"), ("56", "five six"),
        ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "(2,1)"), ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "(1,2,3)"),
        ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "1,2"), ("\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "\\{1,2\\}"),
        ("\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}", "(1,2)"),
        ("(1,2)", "\\begin{pmatrix} 2 \\\\ 1 \\end{pmatrix}"),
        ("\\text{A,C,F}", "A,C"), ("\\text{A,C,F}", "A,B,C,D,E,F"), ("\\text{A,C,F}", "not A,C,F"),
        ("\\text{12}", "1 2"),
        ("\\text{A,C}", "A;C"), ("1,234", "\\text{1, 234}"), ("\\text{June 20}", "June 2 0"),
        ("10\\text{:}30", "10:31"),
        ("6, 8\\text{, and }10", "6,810"), ("5", "5, or 6"), ("37", "\\underline{38}"),
        ("5", "\\color{red}{5}, \\color{red}{6}"), ("37", "\\underline{3}+7"), ("5", "\\color{red}{\\ge 5}"),
        ("5", "5\\text{, or }6"), ("5", "5\\text{, and }5"),
    ],
)  # fmt: skip
def test_other_answer_in_the_same_form(reference: str, answer: str) -> None:
    assert not judged(reference, answer)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("B", ("B", "")), ("(B)", ("B", "")), ("B.", ("B", "")), ("\\textbf{(B)}\\ 7", ("B", "7")),
        ("\\text{(C) }12", ("C", "12")), ("\\text{(C) 12}", ("C", "12")), ("A. $x$", ("A", "$x$")),
        ("(C, D)", None), ("C+1", None), ("(A", None), ("AB", None), ("x", None), ("K", None), ("\\text{Bob}", None),
    ],
)  # fmt: skip
def test_choices_are_split_into_letter_and_text(text: str, choice: tuple[str, str] | None) -> None:
    assert split_choice(text) == choice


@pytest.mark.parametrize(
    ("references", "right", "wrong"),
    [
        (["1/2", "0.5"], "0.5", "5"), (["4", "5"], "5", "4, 5"), (["4", "5"], "x=4", "x=6"), (["4", "5"], "4", "45"),
        (["4", "\\sqrt2"], "\\sqrt{2}", "4\\sqrt2"),
        (["\\text{Paris}", "\\text{paris}"], "\\text{Paris}", "\\text{Pari}"),
        (["(1,2)", "\\frac12"], "2/4", "(1,2), \\frac12"), (["4", "5"], "5", "4\\text{ or }5"),
        (["4", "5"], "5", "4\n5"), (["4", "5"], "4.0\x1e5", "4\x1e6"),
    ],
)  # fmt: skip
def test_each_alternative_is_correct_alone(references: list[str], right: str, wrong: str) -> None:
    assert judged(ALTERNATIVE.join(references), right)
    assert not judged(ALTERNATIVE.join(references), wrong)
    assert not judged("\n".join(references), references[0])  # one answer of two lines


UNITS = (
    " one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
TENS = "  twenty thirty forty fifty sixty seventy eighty ninety"


def in_words(number: int) -> str:
    """Spell a number below a thousand million."""
    for scale, name in ((10**6, "million"), (10**3, "thousand"), (100, "hundred")):
        if number >= scale:
            rest = number % scale
            return f"{in_words(number // scale)} {name}" + (f" {'and ' * (rest < 100)}{in_words(rest)}" if rest else "")
    if number < 20:
        return UNITS.split(" ")[number] or "zero"
    return TENS.split(" ")[number // 10] + (f"-{UNITS.split(' ')[number % 10]}" if number % 10 else "")


@given(st.integers(0, 10**9 - 1))
def test_numbers_in_words_are_read(number: int) -> None:
    assert number_of_words(in_words(number)) == str(number)
    assert number_of_words(f"\\text{{{in_words(number).title()}}}") == str(number)


@pytest.mark.parametrize(
    "text", ["", "and", "two one", "twenty ten", "one hundred one hundred", "two thousand three million", "four x"]
)
def test_other_words_are_not_numbers(text: str) -> None:
    assert number_of_words(text) is None


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("\\sqrt2", "1.41421356"), ("\\sqrt{2}", "1.4142135623730951"), ("\\frac{22}{7}", "3.142857"),
        ("22/7", "3.142857142857143"), ("3+\\sqrt2", "4.414213562373095"), ("\\pi", "3.141592653589793"),
        ("(\\sqrt2,1)", "(1.4142135623730951, 1)"), ("\\{\\sqrt2, 1\\}", "\\{1.41421356, 1\\}"),
        ("\\frac13", "0.33333333"), ("\\frac{x}{3}", "0.33333333x"), ("24", "23.999999999999996"),
    ],
)  # fmt: skip
def test_decimals_are_exact_if_asked_for(reference: str, answer: str) -> None:
    assert judged(reference, answer) or "x" in reference
    assert not judged(reference, answer, exact=True)


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("\\frac12", "0.5"), ("\\sqrt8", "2\\sqrt2"), ("\\sqrt{12}", "2\\sqrt3"), ("50", "50.0"), ("50\\%", "0.5"),
        ("1.41", "1.41"), ("1.414", "1.4140"), ("(\\frac12,1)", "(0.5, 1.0)"), ("3/4", "0.75"), ("1/3", "2/6"),
        ("x^2+2x+1", "(x+1)**2"), ("\\frac{x}{4}", "0.25x"), ("1.4142136", "\\sqrt2"), ("0.333333", "1/3"),
        ("1\\frac12", "1.5"), ("\\text{(C) }0.5", "\\frac12"),
    ],
)  # fmt: skip
def test_exact_comparison_accepts_equal_numbers(reference: str, answer: str) -> None:
    assert judged(reference, answer)
    assert judged(reference, answer, exact=True)
