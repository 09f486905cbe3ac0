"""Problems that can be verified, that are not in an evaluation set, and that are worth training on."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torl.apps.curation.difficulty import learning_impact
from torl.apps.curation.selecting import allocate, balanced_sample, bin_of
from torl.apps.curation.similarity import (
    ContaminationMatch,
    EvaluationSets,
    SimilarTexts,
    shingles_of,
    similarity,
    words_of,
)
from torl.apps.curation.verifiability import normalize_answer, rejection_reason
from torl.types import Problem

DISTANCE = "A train leaves the station at noon and travels at 60 miles per hour. How far has it gone after 3 hours?"


@pytest.mark.parametrize(
    ("question", "answer", "reason"),
    [
        ("What is $1+1$?", "2", None),
        ("Prove that $\\sqrt{2}$ is irrational.", "proof", "proof"),
        ("Show that the sum of two odd integers is even.", "2k", "proof"),
        ("Find all primes $p$ and prove that there are no others.", "2, 3", None),
        ("What is it?", "notfound", "no_answer"),
        ("What is it?", "$$", "no_answer"),
        ("(a) Find $x$. (b) Find $y$.", "1, 2", "multiple_parts"),
        ("Answer: (i) what is $x$? (ii) what is $y$?", "1", "multiple_parts"),
        ("What are they?", "(a) 3; (b) 4", "multiple_parts"),
        ("What is $1+1$? (A) 1 (B) 2 (C) 3", "B", "multiple_choice"),
        ("What is $1+1$? (A) 1 (B) 2 (C) 3", "2", None),
        ("Which point is it?", "B", None),
        ("What is $1+1$?\nA. 1\nB. 2", "$\\textbf{(B)}\\ 2$", "multiple_choice"),
        ("What is $1+1$?\nA. 1\nB. 2", "(B) 2", "multiple_choice"),
        ("What is $1+1$? A) 1 B) 2", "\\text{B}", "multiple_choice"),
        ("What is $1+1$?", "\\text{(B)}\\ 2", "multiple_choice"),
        ("What is $1+1$? A) 1 B) 2", "B(2)", None),
        ("What is it?", "nan", "no_answer"),
        ("What are they?", "$\\boxed{1}$ or $\\boxed{2}$", "multiple_parts"),
        ("How many are there?", "\\frac{1}{2}", None),
        ("How many are there?", "\\frac{1}{", "unreadable_answer"),
        ("How many are there?", "1}{2", "unreadable_answer"),
        ("How many are there?", "$5", "unreadable_answer"),
        ("How much is it?", "\\$5", None),
        ("Simplify \\[\\frac{(x + a)^3}{(a - b)(a - c)} + \\frac{(x + b)^3}{(b - a)(b - c)}.\\]", "3x", None),
        ("What is it?", "\\{1, 2\\}", None),
        ("Who is it?", "the youngest of them", None),
        ("Who is it?", "It cannot be said because there are too many of them", "prose"),
    ],
)
def test_unverifiable_problem_has_a_reason(question: str, answer: str, reason: str | None) -> None:
    assert rejection_reason(Problem("p", question, answer)) == reason


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("She sold 48/2 = <<48/2=24>>24 clips in May, and 72 in both months together.\n#### 72", "72"),
        ("101*72=7272, plus 24 is <<7272+24=7296>>7296\nSo it is.\n#### 7,296", "7,296"),
        ("As $x^2 = 4$ and x is positive, the answer is $\\boxed{\\dfrac{2}{1}}$ meters.", "\\frac{2}{1}"),
        ("First $\\boxed{2}$, and after all that was said above, $\\boxed{2}$.", "2"),
        ("It cannot be said because there are too many of them", None),
    ],
)
def test_answer_is_taken_from_a_solution(solution: str, answer: str | None) -> None:
    """As GSM8K and MATH have them."""
    assert (rejection_reason(Problem("p", "What is it?", solution)) is None) == (answer is not None)
    assert normalize_answer(solution) == (answer or solution)


@pytest.mark.parametrize(
    ("answer", "normalized"),
    [
        ("$\\boxed{12}$.", "$\\boxed{12}$"),
        ("\\boxed{12}", "12"),
        ("$\\boxed{\\dfrac{1}{2}}$", "\\frac{1}{2}"),
        ("\\left(1, 2\\right)", "(1, 2)"),
        ("\\leftarrow", "\\leftarrow"),
        ("$1$ and $2$", "$1$ and $2$"),
        ("12.", "12"),
        ("1, 2, ...", "1, 2, ..."),
        ("\\(3\\)", "3"),
    ],
)
def test_answers_are_normalized(answer: str, normalized: str) -> None:
    once = normalize_answer(answer)
    assert once == normalized or answer.endswith(".")
    assert normalize_answer(normalize_answer(once)) == normalize_answer(once)


TEXTS = st.lists(st.lists(st.sampled_from("abcdef"), max_size=9).map(" ".join), min_size=1, max_size=12)


@settings(deadline=None)
@given(TEXTS, st.sampled_from([0.2, 0.5, 0.8, 1.0]))
def test_no_similar_pair_is_missed(texts: list[str], threshold: float) -> None:
    """Against comparing each with each."""
    held = SimilarTexts(threshold, texts)
    for number, text in enumerate(texts):
        every = [similarity(shingles_of(text), shingles_of(other)) for other in texts[:number]]
        near = held.nearest(text)
        best = max([each for each in every if each >= threshold and shingles_of(text)], default=None)
        assert (near[1] if near else None) == best
        if near:
            assert every[int(near[0])] == best
        held.add(str(number), text)


def test_layout_case_and_punctuation_do_not_count() -> None:
    assert words_of("Let $X = \\left( 1, 2\\right)$.") == words_of("let $x=(1,2)$")


# --- evaluation sets ----------------------------------------------------------------------------------------------


def against(*questions: str, words: int = 8, threshold: float = 0.7) -> EvaluationSets:
    problems = [Problem(f"e{number}", question, "1") for number, question in enumerate(questions)]
    return EvaluationSets({"set": problems}, words, threshold, [])


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (DISTANCE, "ngram"),
        ("Warm-up. " + DISTANCE.upper() + " Explain.", "ngram"),
        ("A train leaves the station at noon and travels West; where is it?", "ngram"),
        (
            "A train departs the station at noon and travels with 60 miles per hour. How far will it be after 3 hours?",
            None,
        ),
        ("A bus stands still. Where is it?", None),
    ],
)
def test_a_problem_that_is_evaluated_on_is_found(question: str, reason: str | None) -> None:
    hit = against(DISTANCE).find_match(Problem("p", question, "1"))
    assert (hit.reason if hit else None) == reason


def test_a_problem_that_is_nearly_the_same_is_found() -> None:
    changed = DISTANCE.replace("60", "70").replace("3", "4")
    assert against(DISTANCE, words=15, threshold=0.6).find_match(Problem("p", changed, "1")) == ContaminationMatch(
        "p", "set", "e0", "near_duplicate", "0.68"
    )
    assert against(DISTANCE, words=15, threshold=0.8).find_match(Problem("p", changed, "1")) is None


def test_a_short_problem_is_found_by_all_of_its_words() -> None:
    sets = against("What is 7 times 9?")
    hit = sets.find_match(Problem("p", "Alice asks: what is 7 times 9, Bob?", "63"))
    assert hit is not None
    assert (hit.evaluation_problem, hit.shared) == ("e0", "what is 7 times 9")
    assert sets.find_match(Problem("p", "What is 7 times 8?", "56")) is None


LAKE = "A lake lies around a square island whose sides are 3 long, its own shore is a circle. The share of water is"
FORM = " m/n, where m and n are relatively prime. Find m + n."


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Roll a fair die until it has shown each of its faces; the chance of ten throws is" + FORM, False),
        (LAKE + FORM, True),
        ("As a hint, draw it. " + LAKE.upper() + FORM + " Explain.", True),
    ],
)
def test_words_in_a_row_are_a_hit_only_with_most_of_the_others(question: str, found: bool) -> None:
    """Many problems contain instructions on how to write an answer; here another problem has them too, and is first."""
    other = "Eight friends sit down around a table, at random; nobody has the seat of before with probability" + FORM
    evaluated = LAKE + FORM
    hit = against(other, evaluated, threshold=0.95).find_match(Problem("p", question, "1"))
    assert (None if hit is None else hit.evaluation_problem) == ("e1" if found else None)


def test_words_that_many_problems_have_are_a_phrase() -> None:
    phrase = "where m and n are relatively prime positive integers. Find m + n."
    evaluated = [Problem("e", f"The area of the lake is m/n, {phrase}", "7")]
    problems = [Problem(f"p{number}", f"Bob has {number} m/n, {phrase}", "7") for number in range(6)]
    few, many = (
        EvaluationSets({"set": evaluated}, 8, 0.9, [problem.question for problem in problems[:count]])
        for count in (5, 6)
    )
    assert few.find_match(problems[0]) is not None
    assert many.find_match(problems[0]) is None
    assert many.find_match(evaluated[0]) is not None  # the rest of it is not a phrase


# --- choosing -----------------------------------------------------------------------------------------------------


def test_learning_impact_by_hand() -> None:
    """Means 1/2 and 3/4; the largest distance is 1/4 + 1/16 = 5/16."""
    scores = learning_impact({"up": [0.0, 1.0], "same": [1.0, 0.5], "follows": [0.5, 0.75]})
    assert scores["follows"] == 1.0
    assert scores["up"] == pytest.approx(float(1 - (Fraction(1, 4) + Fraction(1, 16)) / Fraction(5, 16)))
    assert scores["same"] == pytest.approx(float(1 - (Fraction(1, 4) + Fraction(1, 16)) / Fraction(5, 16)))
    assert learning_impact({"a": [1.0], "b": [1.0]}) == {"a": 1.0, "b": 1.0}
    assert learning_impact({}) == {}


def test_a_problem_of_fewer_epochs_is_compared_in_these() -> None:
    scores = learning_impact({"one": [0.0], "two": [1.0, 0.0], "three": [0.5, 1.0]})
    assert scores["one"] == pytest.approx(1 - 0.25 / 0.25)
    assert scores["three"] == pytest.approx(1 - 0.25 / 0.5)


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 9), st.integers(0, 20), max_size=6), st.integers(0, 80))
def test_shares_are_as_equal_as_they_can_be(sizes: dict[int, int], count: int) -> None:
    given_ = allocate(sizes, count)
    assert sum(given_.values()) == min(count, sum(sizes.values()))
    assert all(0 <= given_[cell] <= sizes[cell] for cell in sizes)
    for poor in sizes:
        if given_[poor] < sizes[poor]:  # it has more to give, so no source gave two more than it
            assert max(given_.values()) <= given_[poor] + 1


def test_a_balanced_choice_takes_the_best_of_each_cell_in_the_order_of_the_file() -> None:
    problems = [Problem(f"{source}{number}", "?", "1") for number in range(10) for source in "ab"][:13]
    chosen = balanced_sample(problems, 6, lambda problem: problem.id[0], lambda problem: float(problem.id[1:]))
    assert [problem.id for problem in chosen] == ["b3", "a4", "b4", "a5", "b5", "a6"]
    assert Counter(problem.id[0] for problem in chosen) == {"a": 3, "b": 3}


def test_bins_set_the_never_and_the_always_solved_apart() -> None:
    assert [bin_of(rate, 4) for rate in (0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0)] == [0, 1, 2, 3, 4, 4, 5]
