"""Numbers, sets and layouts in notations that math-verify does not read."""

import time

import pytest

from torl.components.grading.differences import is_clearly_different
from torl.components.grading.equivalence import UndecidedError, equivalent
from torl.components.grading.layout import have_same_words, plain_layout
from torl.components.grading.lists import solution_set
from torl.components.grading.numerals import as_decimal, multiplied, plain_numbers, without_noise
from torl.components.grading.units import have_other_units, without_currency


def judged(reference: str, answer: str) -> bool:
    """An undecided pair is wrong."""
    try:
        return equivalent(reference, answer)
    except UndecidedError:
        return False


@pytest.mark.parametrize(
    ("reference", "right", "wrong"),
    [
        ("6.02e23", "6.02 \\times 10^{23}", "6.02 \\times 10^{22}"),
        ("6.02\\times10^{23}", "6.02*10**23", "6.02"), ("6.02 \\times 10^{23}", "6.02e+23", "6.03e23"),
        ("1 < x \\le 3", "(1, 3]", "[1, 3]"), ("(1,3]", "3 \\ge x > 1", "1 \\le x \\le 3"),
        ("(1,3]", "x > 1 \\text{ and } x \\le 3", "x > 1 \\text{ or } x \\le 3"),
        ("x<1 or x>3", "(-\\infty,1)\\cup(3,\\infty)", "(1,3)"),
        ("(-\\infty,1)\\cup(3,\\infty)", "x<1 \\text{ or } x>3", "x<1 \\text{ or } x \\ge 3"),
        ("(-\\infty,3)\\cup(3,\\infty)", "x \\ne 3", "x \\ne 2"), ("2<x<5", "5>x>2", "2<y<5"),
        ("2 1/2", "\\frac52", "21/2"), ("\\frac52", "2 1/2", "2 1/3"), ("2\\frac12", "2 1/2", "1"),
        ("-2 1/2", "-2.5", "-1.5"), ("0.\\dot3", "\\frac13", "0.3"), ("1/3", "0.\\overline{3}", "0.3"),
        ("\\frac{123}{999}", "0.\\dot{1}2\\dot{3}", "0.123"), ("3rd", "third", "fourth"), ("third", "3rd", "1/3"),
        ("21st", "twenty-first", "22nd"), ("10 000", "10000", "0"), ("10000", "10 000", "1 000"),
        ("10{,}000", "10,000", "10"), ("10,000", "10 000", "10.000"),
        ("\\langle 1,2 \\rangle", "(1,2)", "(2,1)"), ("(1,2)", "<1, 2>", "<1, 3>"),
        ("\\emptyset", "no solution", "0"), ("no solution", "none", "no"), ("none", "\\emptyset", "1"),
        ("12", "\uff11\uff12", "\uff11\uff13"),
        ("(1,2)", "\uff08\uff11\uff0c\uff12\uff09", "\uff08\uff12\uff0c\uff11\uff09"),
        ("2:3", "2 : 3", "2/3"),
        ("2/3", "\\frac{2}{3}", "2:3"), ("90^\\circ", "90", "\\frac{\\pi}{2}"),
        ("2^\\circ", "2", "2 \\text{ radians}"), ("5", "5.0", "5 or 5"),
        ("5", "x=5", "5, 6"),
        ("5", "€5", "€6"), ("€5", "5", "6"), ("5", "5 euros", "6 euros"), ("€5", "5 euros", "$5"),
        ("\\$5", "5", "5 cents"), ("\\$5", "5.00", "500 cents"), ("5", "\\$5", "\\$6"),
        ("5 dollars", "\\$5", "€5"), ("$5", "5 dollars", "5 cents"),
        ("5 cents", "5¢", "\\$5"), ("£5", "5 pounds", "5 lb"), ("5 lb", "5 pounds", "£5"), ("5", "£5", "£5 or £6"),
        ("1000", "€1,000", "€1,001"), ("-\\$5", "-5", "5"), ("\\$5", "5\\text{ dollars}", "5\\%"),
        ("5", "\\text{five dollars}", "\\text{six dollars}"), ("€5", "\\text{€}5", "5 cm"),
        ("\\frac52", "€2.50", "€52"),
        ("5 USD", "US\\$5", "5 EUR"), ("50\\%", "50 percent", "50 cm"),
        ("31", "0x1F", "0x1E"), ("0x1F", "31", "1"), ("0x1F", "0x1f", "0b11111"), ("0x1F", "1F_{16}", "1F_{17}"),
        ("5", "0b101", "0b100"), ("0b101", "5", "101"), ("101", "0b1100101", "0b101"), ("15", "0o17", "0o16"),
        ("0o17", "15", "17"), ("(101)_2", "101_2", "110_2"), ("101_2", "(101)_2", "(101)_3"),
        ("-37_8", "-37_{8}", "-37_9"), ("-37_8", "-037_{\\text{eight}}", "37_8"), ("-(12)_7", "-12_7", "12_7"),
        ("0.0011_{2}", "0.00110_2", "0.0011_{3}"), ("0.0011_{2}", "0.0011_{\\text{two}}", "0.011_2"),
        ("101_2", "101_{\\text{two}}", "101_{\\text{three}}"), ("101_2", "0b101", "5"), ("10_2", "10", "2"),
        ("\\langle 1,2\\rangle", "\\langle 1, 2 \\rangle", "1,2"), ("(1,2)", "\\langle 1,2\\rangle", "1,2"),
        ("1,2", "2,1", "\\langle 1,2\\rangle"), ("\\langle 1,2\\rangle", "(1, 2)", "\\{1,2\\}"),
        ("5", "{5}", "[5]"), ("5", "(5)", "\\{5\\}"), ("[5]", "[5.0]", "5"), ("\\{5\\}", "\\{ 5 \\}", "5"),
        ("[5]", "[5]", "\\{5\\}"), ("\\frac52", "2.5", "\\left\\{\\frac52\\right\\}"),
        ("1,1,2", "1, 2, 1", "1,2"), ("1,2", "2, 1", "1,1,2"), ("(1,3)", "{1,3}", "1,3"),
        ("\\cos 60^\\circ", "\\cos(60°)", "\\cos 60"), ("\\cos 60", "cos(60)", "cos(60°)"),
        ("(6,3),(9,5)", "\\{(6,3),(9,5)\\}", "\\{(3,6),(9,5)\\}"), ("\\{(1,2),(3,4)\\}", "(3,4),(1,2)", "(2,1),(3,4)"),
        ("(-\\infty,0)\\cup\\{1\\}", "\\{1\\}\\cup(-\\infty,0)", "\\{0\\}\\cup(-\\infty,1)"),
        ("\\{1\\}\\cup(2,3)", "(2,3)\\cup\\{1\\}", "\\{1,2,3\\}"), ("\\{1,2\\}", "\\{2,1\\}", "(1,2)."),
        ("(1,2)", "(1, 2)", "\\{(1,2)\\}"), ("\\{1,2\\}", "\\{2, 1\\}", "\\left(1,2\\right]"),
        ("\\{1,2\\}", "\\{1, 2\\}", "(1,2)\\text{ cm}"),
        ("5000000", "5 \\text{ million}", "5"), ("5", "5 \\text{ units}", "5 \\text{ million}"),
        ("5", "5 cm", "5 million"),
        ("5 \\text{ million}", "5000000", "5 \\text{ thousand}"), ("5 \\text{ million}", "5", "6"),
        ("60", "5 \\text{ dozen}", "5 \\text{ hundred}"), ("5200000", "5.2\\text{ million people}", "5.2 billion"),
        ("5000000", "\\$5\\text{ million}", "\\$5"), ("\\$5 million", "5000000", "€5 million"),
        ("5", "5\\text{ cm}", "\\$5\\text{ million}"), ("5", "5", "5 \\text{ dozen}"),
        ("5", "5", "5 \\text{ factorial}"),
        ("37", "37 \\text{ cm squared}", "37 \\text{ squared}"), ("5", "5", "5 \\text{ and up}"),
        ("3", "3\\text{ hours}", "3\\text{ hours and }30\\text{ minutes}"), ("3", "3 ft", "3\\text{ ft }2\\text{ in}"),
        ("1,2,3", "3,2,1", "1,2,3,\\ldots"), ("37", "37", "37, ..."), ("1/3", "0.333333333...", "0.34, \\dots"),
        ("\\frac{1}{3000000}", "3.3333e-07", "0.0"), ("10^{-8}", "0.00000001", "0.0"),
        ("e^{-20}", "e^{-20}", "0.0\\text{ cm}"),
        ("\\frac{1}{6084}", "0.00016437", "0.000164"), ("0.000164", "\\frac{1}{6084}", "\\frac{1}{6000}"),
        ("\\frac{3}{5000000}", "6e-7", "0.000001"), ("\\sin\\pi", "0.0", "0.0000001"),
        ("(0,0)", "(0.0, 0.00)", "(0.0, 0.01)"),
        ("0", "x = 0.0", "\\frac{1}{3000000}"), ("\\frac{1}{30}", "0.0\\overline{3}", "0.0"),
        ("\\frac{2}{3}", "0.666667", "0.6667"),
        ("24", "23.999999999999996", "23.9999999"), ("100", "100.00000000000001", "100.0000001"),
        ("0", "0.0", "1.2246467991473532e-16"), ("1", "0.9999999999999999", "0.0000000001"),
        ("12345678901", "12345678900.999999537", "12345678902.0000019"), ("5", "5.0", "5, 5.0000000000000001"),
        ("55^\\circ", "54.99999999999999", "54.99"), ("x=5", "5.000000000000001", "-5.000000000000001"),
        ("(2,4)", "(2.0000000000000004,4)", "(4, 2.0000000000000004)"), ("6+9i", "6.000000000000001+9j", "6+9.1j"),
        ("1000", "1,000.00", "1,0"), ("12000", "12,000.", "12,0"), ("1,0", "1,0.0", "1,000.0"),
        ("1000", "1{,}000.00", "1{,}000.01"), ("20,\\!000", "20,000.", "20,0"),
        ("25", "25 \\text{ squared units}", "25 \\text{ squared}"), ("18", "2sqrt(3)*3sqrt(3)", "1 ft 6 in"),
        ("30", "30 \\text{ minutes} = 0.5 \\text{ hours}", "1 \\text{ min }30 \\text{ s}"),
        ("0.99999999999", "0.99999999999", "1"), ("7/2", "3.4999999999999996", "3.4999"),
    ],
)  # fmt: skip
def test_equal_is_accepted_and_other_is_refused(reference: str, right: str, wrong: str) -> None:
    assert judged(reference, right)
    assert not judged(reference, wrong)


@pytest.mark.parametrize("text", ["one third", "2 3/2", "x^3 \\times 10^2", "x,y", "f(2) < f(1) < f(4)", "1 2"])
def test_other_notations_stay_as_they_are(text: str) -> None:
    assert plain_numbers(plain_layout(text)) == text
    assert solution_set(text) is None


@pytest.mark.parametrize(
    "text",
    ["1 " * 1000, "0.\\dot" * 400, "9" * 2000 + "e999", "1" + " 000" * 500, "x<" * 900, " or " * 500, "<," * 900,
     "\\langle" * 280, "2 " + "1" * 1900 + "/3", "1e" + "9" * 1900, "9 \\times 10^{" + "9" * 1900 + "}",
     "\\text{" * 300, "$" * 2000, "€5 " * 600, "5 euros" * 280, "0x" + "F" * 1900, "101_" * 500, "(" * 2000],
)  # fmt: skip
def test_hostile_text_is_read_in_bounded_time(text: str) -> None:
    start = time.process_time()
    read = without_noise(text, plain_numbers(as_decimal(without_currency(plain_layout(text)))))
    solution_set(text)
    have_other_units(text, text)
    is_clearly_different(text, "1,2")
    is_clearly_different("1,2", text)
    have_same_words(text, text + "a")
    multiplied(text)
    assert time.process_time() - start < 0.5
    assert len(read) < 4000
