"""Laws of grading over kinds of expressions: letters, SymPy's printers, near misses, and numbers by mpmath."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from sympy import (
    Abs,
    Eq,
    FiniteSet,
    I,
    Interval,
    Matrix,
    Max,
    Or,
    Rational,
    S,
    Tuple,
    Union,
    acos,
    asin,
    atan,
    binomial,
    cos,
    cot,
    exp,
    factorial,
    floor,
    gamma,
    latex,
    log,
    oo,
    pi,
    sin,
    sqrt,
    symbols,
    tan,
)  # fmt: skip

from answer_laws import LETTERS, near_misses, printings, renamed, without_a_letter
from torl.components.grading.equivalence import UndecidedError, equivalent
from torl.components.grading.verdict import compare_exactly

x, y, a, b, c, n, k, r, h = symbols("x y a b c n k r h")
EXPRESSIONS = [
    sqrt(2), 2 * sqrt(3) / 3, pi / 4, log(2), log(3) / log(2), log(Rational(3, 2)) / 3, exp(2), exp(-x),
    2 ** Rational(1, 3), b**2 - 4 * a * c, 2 * pi * r * h, (x + 1) / (x - 2), x**2 / 2 + sqrt(3) * x - log(2),
    (x + 1) ** (n + 1), sqrt((x + 1) * (x - 1)), sin(x) ** 2, cos(2 * x) / 3, tan(x), cot(x), asin(x),
    atan(Rational(1, 2)), acos(-x), Abs(x - 1), factorial(n), binomial(n, k), floor(x / 2), -Rational(3, 4),
    1 + 2 * I, exp(I * pi / 3), oo, Tuple(1, 2), FiniteSet(-sqrt(2), sqrt(2)), Interval.Ropen(-1, 2),
    Union(Interval.open(-oo, 1), Interval.open(3, oo)), Union(FiniteSet(5), Interval(1, 2)), Matrix([[1, 2], [3, 4]]),
    Eq(y, 2 * x + 1), Rational(1, 2) < x, Or(x < 1, x > 3), (x > 1) & (x < 3), S.EmptySet, S.Reals,
    2 * x * (x - 1) ** 2 / (3 * y), sqrt(2 + sqrt(3)), x / (y + 1) / 2, Max(x, y), gamma(x), x * log(x),
]  # fmt: skip


def judged(reference: str, answer: str) -> bool:
    """The verdict of the grader, with its shortcuts. An undecided pair is wrong."""
    if (verdict := compare_exactly(reference, answer)) is not None:
        return verdict.correct
    try:
        return equivalent(reference, answer)
    except UndecidedError:
        return False


@pytest.mark.parametrize("letter", LETTERS)
def test_a_verdict_does_not_depend_on_the_letter(letter: str) -> None:
    """The letters of units, of calculus and of constants too."""
    right = [("5*q", "5q"), ("3q+1", "1+3q"), ("b^{2} - 4 a q", "b^2-4aq"), ("\\frac{q}{2}", "q/2"),
             ("q_1^2", "q_1 q_1"), ("q>3", "(3,\\infty)"), ("2^q", "2^{q}")]  # fmt: skip
    wrong = [("7q", "7"), ("2 \\pi r q", "2\\pi r"), ("4 a q", "4"), ("4 a q", "4 a"), ("q_1", "q_2"), ("12q", "12")]
    for verdict, pairs in ((True, right), (False, wrong)):
        for reference, answer in pairs:
            assert judged(renamed(reference, "q", letter), renamed(answer, "q", letter)) is verdict, (reference, answer)


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_printed_expressions_are_accepted(expression: object) -> None:
    for reference in (latex(expression), latex(expression, ln_notation=True)):
        for printer, text in printings(expression).items():
            assert judged(reference, text), (reference, printer, text)


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_near_misses_of_printed_expressions_are_refused(expression: object) -> None:
    reference = latex(expression)
    for other in without_a_letter(reference):
        assert not judged(reference, other), other
    for kind, other in near_misses(reference):
        assert not judged(reference, other), (kind, other)


def decimal_of(number: tuple[int, int, int, int]) -> tuple[str, mpf]:
    """A number in LaTeX, and to 60 digits by mpmath: (p / q) s^e with a root, logarithm or power of s."""
    over, under, base, exponent = number
    kinds = (f"\\sqrt{{{base}}}", f"\\ln {base}", f"{base}^{{{exponent}}}")
    values = (mp.sqrt(base), mp.log(base), mpf(base) ** exponent)
    kind = (over + under) % 3
    return f"\\frac{{{over}}}{{{under}}} \\cdot {kinds[kind]}", mpf(over) / under * values[kind]


_NUMBERS = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(2, 9), st.integers(-120, 120))


@settings(max_examples=80, deadline=None)
@given(_NUMBERS, _NUMBERS)
def test_exact_numbers_are_equal_if_sixty_digits_are(
    one: tuple[int, int, int, int], other: tuple[int, int, int, int]
) -> None:
    with mp.workdps(60):
        (reference, gold), (answer, target) = decimal_of(one), decimal_of(other)
        assert judged(reference, answer) is bool(abs(gold - target) <= mpf(10) ** -50 * abs(gold))


_ROOMS = ["%s", "1-%s", "(%s,1)", "[0,%s]", "\\{%s,2\\}", "x=%s", "x<%s", "x+%s", "\\frac{x}{%s}", "\\sqrt{%s}",
          "%s\\text{ cm}", "\\begin{pmatrix}1\\\\%s\\end{pmatrix}", "1, %s"]  # fmt: skip


@pytest.mark.parametrize("room", _ROOMS)
@pytest.mark.parametrize(
    ("one", "other"),
    [("\\frac{1}{2^{99}}", "\\frac{1}{2^{98}}"), ("2^{-99}", "2^{-98}"), ("e^{-40}", "e^{-41}"),
     ("10^{-20}", "10^{-21}"), ("\\frac{1}{2^{100}}", "\\frac{3}{2^{100}}")],
)  # fmt: skip
def test_tiny_numbers_differ_wherever_they_stand(room: str, one: str, other: str) -> None:
    assert judged(room % one, room % one.replace("2^{-99}", "\\frac{1}{2^{99}}"))
    assert not judged(room % one, room % other)


@pytest.mark.parametrize(
    ("reference", "right", "wrong"),
    [
        ("5 cm", "5", "5 m"),
        ("5h", "5\\text{ h}", "5\\text{ m}"), ("12 h", "12", "12 m"), ("12 h", "12h", "13"),
        ("5\\text{ m}", "5", "5\\text{ m}^2"),
        ("5 \\text{ cm}^2", "5 \\text{ square cm}", "5 \\text{ cm}^3"), ("5 cm^2", "5 \\text{ cm}^2", "5 cm"),
        ("37 \\text{ m}/\\text{s}", "37 m/s", "37 km/h"), ("37 m/s", "37", "38"), ("16 \\text{ daps}", "16", "16x"),
        ("60 \\text{ mph}", "60 \\text{ miles per hour}", "60 kmph"), ("16", "16 daps", "16 d"), ("7", "7 m", "7m"),
        ("24\\pi \\text{ cubic inches}", "24\\pi", "24\\pi \\text{ square inches}"),
        ("\\frac{1}{2} h", "\\frac12", "2 h"), ("2\\pi\\mathrm{i}", "2\\pi i", "2\\pi"),
        ("3\\mathbf{i}+4\\mathbf{j}", "4\\mathbf{j}+3\\mathbf{i}", "3\\mathbf{i}+4"),
        ("n \\text{ is odd}", "n\\text{ is odd}", "n"), ("9:45 a.m.", "9:45\\ \\text{a.m.}", "9:45 p.m."),
        ("9:45\\text{ a.m.}", "9:45 AM", "9:45 PM"), ("3\\mathrm{x}", "3x", "3"),
        ("630", "630\\mathrm{~cm}", "630\\mathrm{~cm}+1"), ("5\\mathrm{~cm}", "5", "5\\mathrm{~m}"), ("2~a", "2a", "2"),
        ("15\\mbox{ cm}^2", "N = 15\\mbox{ cm}^2", "N = 16\\mbox{ cm}^2"), ("72\\pi", "72\\pi kg", "72\\pi k"),
        ("$8 \\%$", "8", "9"), ("24\\pi", "24\\pi cm^2", "24\\pi h"),
        ("[3, 4) \\cup \\left(4, 5\\right]", "[3, 4) U \\left(4, 5\\right]", "[3, 4) U \\left(4, 5\\right)"),
        ("\\begin{pmatrix} 1 & \\phantom -2 \\end{pmatrix}", "\\begin{bmatrix} 1 & 2 \\end{bmatrix}", "(1, -2)"),
        ("12\\mathrm{cm}", "12", "12\\mathrm{m}"), ("33\\frac13\\%", "33\\frac13", "33"),
        ("f'(x)=2x", "f'(x) = 2x", "f(x)=2x"), ("3R^2", "3 R^2", "3r^2"), ("2j", "j+j", "2i"),
        ("E = m c^2", "E = c^2 m", "E=m"), ("x_A", "x_{A}", "x_{a}"), ("1+\\gamma", "\\gamma+1", "1.577216"),
        ("6", "\\boxed{6}", "5\\boxed{6}"), ("x", "1+x-1", "x-1"), ("10^{-7}", "0.0000001", "3\\cdot10^{-7}"),
        ("e^{-9}", "0.00012341", "0.000123"), ("x^2=-1", "x^2+1=0", "x^2=-2"),
        ("\\ln 2", "\\log{\\left(2 \\right)}", "\\log_2 2"), ("\\log_{10} 2", "\\log 2", "\\ln 2"),
        ("\\log 2", "\\ln 2", "\\log 3"), ("\\log_2 n", "log(n, 2)", "log(n)"),
        ("\\log_3 5", "math.log(5, 3)", "log(3, 5)"),
        ("\\log x", "\\frac{\\log{\\left(x \\right)}}{\\log{\\left(10 \\right)}}", "\\log_2 x"),
        ("1,000,000, 500,000, 250,000", "1000000, 500000, 250000", "1000000, 500000, 250001"),
        ("1000, 2000", "1,000, 2,000", "1, 0, 2, 0"), ("1,000, 2,000", "1000,2000", "1, 0, 2, 0"),
        ("\\{1\\pm\\sqrt{5},-2\\}", "\\{1+\\sqrt5,1-\\sqrt5,-2\\}", "\\{1+\\sqrt5,-2\\}"),
        ("\\pm1,\\pm2", "1,-1,2,-2", "1,-1,2"), ("(1,2), \\text{and } (3,4)", "(3,4),(1,2)", "(1,2),(4,3)"),
        ("(1,2) \\text{ or } (3,4)", "(1,2), (3,4)", "(1,2)"),
        ("\\frac{1}{2}\\cdot 3=\\frac{3}{2}", "\\frac32", "\\frac12"), ("S = 1+2+3 = 6", "6", "7"),
        ("P(A)=\\frac12", "0.5", "A"), ("(-\\infty,1)\\cup(3,\\infty)", "(x < 1) | (3 < x)", "(x < 1) | (3 <= x)"),
        ("(-\\infty,1)\\cup(3,\\infty)", "\\left(-\\infty < x \\wedge x < 1\\right) \\vee \\left(3 < x\\right)", "x<1"),
        ("(-\\infty,1)\\cup(3,5)", "x<1 \\text{ or } 3<x<5", "x<1 \\text{ or } 3<x<6"),
        ("x \\in (-\\infty,1)\\cup(3,\\infty)", "x<1 \\text{ or } x>3", "x<1 \\text{ or } x>4"),
        ("\\frac a b", "a/b", "b/a"), ("\\sqrt[4]5", "5^{1/4}", "\\sqrt5"),
        ("\\binom n k", "\\binom{n}{k}", "\\frac nk"), ("\\frac{1}\\pi", "1/\\pi", "\\pi"),
        ("\\frac123", "\\frac32", "\\frac{1}{23}"), ("x^ab", "b x^a", "x^{ab}"),
        ("\\sqrt\\frac12", "\\frac{\\sqrt2}{2}", "\\frac{\\sqrt1}{2}"), ("\\bigl(1,2\\bigr)", "(1,2)", "(2,1)"),
        ("\\left(\\frac12,\\frac13\\right)", "(0.5,\\frac13)", "(1,\\frac23)"),
        ("(\\frac12,\\frac13)", "(\\frac24,\\frac13)", "(-\\frac12,-\\frac13)"),
    ],
)  # fmt: skip
def test_equal_is_accepted_and_another_is_refused(reference: str, right: str, wrong: str) -> None:
    assert judged(reference, reference)
    assert judged(reference, right)
    assert not judged(reference, wrong)
