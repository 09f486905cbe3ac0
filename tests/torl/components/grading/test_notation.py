"""Answers as a model writes them that has just read Python's output, against references of datasets."""

import pytest

from torl.components.grading.differences import is_clearly_different
from torl.components.grading.equivalence import equivalent
from torl.components.grading.notation import as_latex

SAME = [
    ("5", "5."), ("5", "5,"), ("5", "5\\\\"), ("5", "5~"), ("5", "5?"), ("5", "**5**"), ("10", "10.0."), ("90", "90°"),
    ("1.2e-5", "1.2\\times10^{-5}"), ("1.2\\times10^{-5}", "1.2e-5"), ("100000", "1e5"), ("100000", "1e+05"),
    ("0.00001", "1e-05"), ("12345678901234567890", "1.2345678901234567890e19"), ("2.5\\times 10^{-7}", "2.5e-07"),
    ("2\\pi", "2*pi"), ("2\\pi", "2pi"), ("\\frac{\\pi}{4}", "pi/4"), ("2^{10}", "2**10"), ("x^2", "x**2"),
    ("x^2+1", "x**2 + 1"), ("x^{-1}", "x**(-1)"), ("2\\sqrt{3}", "2*sqrt(3)"), ("\\frac{\\sqrt{3}}{2}", "sqrt(3)/2"),
    ("\\frac34", "Fraction(3, 4)"), ("-\\frac34", "Rational(-3, 4)"), ("6+9i", "6+9j"), ("6+9i", "(6+9j)"),
    ("e^{2}", "exp(2)"), ("\\sqrt{3}", "√3"), ("x^2", "x²"), ("\\frac{1}{2}", "½"), ("\\infty", "∞"),
    ("10000", "10\\,000"), ("1/3", "0.\\overline{3}"), ("\\frac{1}{6}", "0.1\\overline{6}"),
    ("\\emptyset", "\\varnothing"), ("(-\\infty,2]", "x \\le 2"), ("(1,2)", "1<x<2"), ("[-2,3)", "-2\\le x<3"),
    ("x \\ge 5", "x ≥ 5"), ("-5", "\N{MINUS SIGN}5"), ("i", "\\sqrt{-1}"), ("-1", "i^2"), ("-i", "\\frac1i"),
    ("2i", "(1+i)^2"), ("2i", "\\sqrt{-4}"), ("1+i", "\\sqrt2 e^{i\\pi/4}"), ("\\frac{1+i}{2}", "0.5+0.5i"),
    ("2i", "2I"), ("3+4i", "4i+3"), ("\\{1+i,1-i\\}", "1\\pm i"), ("n \\equiv 3 \\pmod 5", "n\\equiv 3\\pmod{5}"),
    ("n\\equiv 3\\pmod{12}", "n\\equiv 3\\pmod 12"), ("45\\ ", "45"), ("45", "45\\ "), ("45\\", "45"),
    ("\\mathbb{R}", "\\text{all real numbers}"), ("All real numbers.", "(-\\infty,\\infty)"),
    ("3 \\text{ to } 2", "3:2"), ("3:2", "3 to 2"), ("7", "7 km/h"), ("7", "7 people"), ("7", "7 miles per hour"),
    ("7", "7m/s."), ("9.8", "9.8 m/s^2"), ("10\\sqrt{3}", "10\\sqrt{3} cm^2"), ("\\frac12", "\\frac{1}{2} kg"),
    ("1,200", "1200 students per year"),
]  # fmt: skip

DIFFERENT = [
    ("5", "\\ne 5"), ("5", "\\ge 5"), ("5", "\\le 5"), ("5", "< 5"), ("5", "> 5"), ("5", "\\neg 5"), ("5", "≥ 5"),
    ("5", "5 or 6"), ("5", "{5,6}"), ("5", "\\pm 5"), ("5", "5;6"), ("5", "[5, 6]"), ("5", "5, 6."), ("5", "x=5,x=6"),
    ("0.00001", "2e-05"), ("1e-7", "1e-8"), ("0.0000001", "0.00000001"), ("0", "1e-9"), ("3", "3j"), ("8", "2**4"),
    ("\\frac34", "Fraction(4, 3)"), ("1/3", "0.\\overline{4}"), ("10000", "10\\,00"), ("(1,2)", "1<x<3"),
    ("i", "-i"), ("1", "i^2"), ("2i", "2"), ("1+i", "1-i"), ("i", "e^{i\\pi}"), ("x+i", "x+2i"), ("a_i", "a"),
    ("i", "j"), ("\\sum_{i=1}^{n} i", "i"), ("2\\pi", "2*p*i"), ("x^{12}", "x**1*2"), ("3.5", "3.5e1"),
    ("5", "0 \\le i \\le n"), ("\\frac12", "(0, i)"), ("3", "i > 0"), ("3", "\\max(i, 3)"), ("5", "3+2i \\le x"),
    ("3\\pmod 5", "3\\pmod 7"), ("3\\pmod{5}", "3\\pmod 57"), ("45\\ ", "46"), ("3:2", "2 to 3"), ("3:2", "3 to 20"),
    ("\\mathbb{R}", "all real numbers except 0"), ("\\mathbb{R}", "\\text{no real numbers}"), ("3 to 2", "\\frac32"),
    ("7", "8 km/h"), ("7", "7 or 8 people"), ("30", "3 hours and 30 minutes"), ("30", "3 hours 30 min"), ("7", "-7 km"),
    ("7", "7 million people"), ("7", "7 dozen cards"), ("7", "7 x"), ("7", "7 pi km"), ("7", "7 squared feet"),
    ("57", "5 7 people"), ("7", "at least 7 people"), ("7", "7\\% people"), ("67", "5'7 in"), ("7", "7! km"),
    ("7x", "7 m/s"), ("7 \\text{ km/h}", "7 m/s"),
    ("5", "i<i"), ("\\frac12", "x < x"), ("[1,2]", "1<x<x"), ("0", "\\{i \\mid i \\le 3\\}"),
]  # fmt: skip


@pytest.mark.parametrize(("reference", "answer"), SAME)
def test_the_same_in_another_notation(reference: str, answer: str) -> None:
    assert equivalent(reference, answer)


@pytest.mark.parametrize(("reference", "answer"), DIFFERENT)
def test_not_the_same_in_any_notation(reference: str, answer: str) -> None:
    assert not equivalent(reference, answer)


@pytest.mark.parametrize(
    "answer",
    ["\\frac{1}{2}", "x^2 + 7x + 10", "\\left( 3, \\frac{\\pi}{2} \\right)", "\\text{Evelyn}", "2\\sqrt{3}",
     "11\\sqrt2", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "(-\\infty, 2]", "\\sin^2 t", "17.5", "3e", "2e + 3"],
)  # fmt: skip
def test_latex_stays_as_it_is(answer: str) -> None:
    assert as_latex(answer) == answer


def test_a_relation_may_answer_a_relation() -> None:
    assert not is_clearly_different("x \\ge 5", "\\ge 5")
    assert not is_clearly_different("\\le 5", "\\leq 5")
    assert not is_clearly_different("0.333333", "0.3333333")
