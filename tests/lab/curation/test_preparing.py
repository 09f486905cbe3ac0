"""Problems that can be verified, that are not in an evaluation set, and that are worth training on."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torl.base.types import Problem
from torl_lab.curation.contamination import ContaminationMatch, EvaluationIndex, overlap_fraction
from torl_lab.curation.difficulty import learning_impact
from torl_lab.curation.selecting import allocate, balanced_sample, bin_of
from torl_lab.curation.similarity import Shingles, SimilarTexts, without_letters, words_of
from torl_lab.curation.verifiability import AnswerShapes, normalize_answer, rejection_reason, shape_of

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
        ("Докажите, что сумма двух нечётных чисел чётна.", "2k", "proof"),
        ("证明: 两个奇数之和是偶数。", "2k", "proof"),
        ("求 $x$, 并证明它是唯一的。", "2", "other_script"),
        ("Найдите сумму чисел 1 и 2.", "3", "other_script"),
        ("Erdős and Гаусс count $\\alpha + \\beta$ apples; how many?", "3", None),
        ("Für welches $λ$ gilt $λ^2 = 4$?", "2", None),
        ("Factor $a^2 b - a b^2 + \\ldots$.", "(a - b)(b - c)(c - a)", None),
        ("For the function $f$, (1) find $f(1)$. (2) find $f(2)$.", "1", "multiple_parts"),
        ("Find a circle through the points (1), (2) and (3).", "1", None),
        ("What is it? " + "x" * 20_000, "2", "long_question"),
        ("What is it?", "2" * 2001, "long_answer"),
        ("What is $1+1$? (A) 1 (B) 2 (C) 3", "B", "multiple_choice"),
        ("What is $3+4$?\nA. 4\nB. 7", "$\\textbf{(B)}\\ 7$", "multiple_choice"),
        ("What is $3+4$? A) 4 B) 13", "\\text{B}", "multiple_choice"),
        ("What is $1+1$? (A) 1 (B) 2 (C) 3", "2", None),
        ("Which point is it?", "B", None),
        ("What is $1+1$?\nA. 1\nB. 2", "$\\textbf{(B)}\\ 2$", "multiple_choice"),
        ("What is $1+1$?\nA. 1\nB. 2", "(B) 2", "multiple_choice"),
        ("What is $1+1$? A) 1 B) 2", "\\text{B}", "multiple_choice"),
        ("What is $1+1$?", "\\text{(B)}\\ 2", "multiple_choice"),
        ("What is $1+1$? A) 1 B) 2", "B(2)", None),
        ("What is it?", "nan", "no_answer"),
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
    ("answer", "normalized"),
    [
        ("$\\boxed{12}$.", "12"),
        ("\\boxed{12}", "12"),
        ("$\\boxed{\\dfrac{1}{2}}$", "\\frac{1}{2}"),
        ("\\left(1, 2\\right)", "(1, 2)"),
        ("\\leftarrow", "\\leftarrow"),
        ("$1$ and $2$", "$1$ and $2$"),
        ("12.", "12"),
        ("1, 2, ...", "1, 2, ..."),
        ("\\(3\\)", "3"),
        ("\\boxed{5}\x1e$6$", "5\x1e6"),
    ],
)
def test_answers_are_normalized(answer: str, normalized: str) -> None:
    assert normalize_answer(answer) == normalized
    assert normalize_answer(normalized) == normalized


def test_text_answers_need_only_be_there() -> None:
    question = "Who discovered it? (A) Röntgen (B) Curie"
    assert rejection_reason(Problem("p", question, "Wilhelm Conrad Röntgen of the town of Lennep\nRöntgen")) == "prose"
    assert rejection_reason(Problem("p", question, "Wilhelm Röntgen of\nLennep or so"), text_answers=True) is None
    assert rejection_reason(Problem("p", question, "none"), text_answers=True) == "no_answer"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("12\\sqrt{5}", "37\\sqrt{2}", True),
        ("12\\sqrt{5}", "7\\sqrt{2}", False),  # \\frac12 is not \\frac123
        ("x^{12}+3", "x^{12}+4", True),
        ("9^{9^9}", "9^{9^2}", False),  # an exponent decides how long it takes
        ("\\frac{1}{0}", "\\frac{1}{2}", False),  # a zero whether it is a number
        ("x+1", "y +  1", False),
        ("3x^2 + k", "5y^2 + m", True),
        ("2i", "2k", False),
        ("\\sin x", "\\cos x", False),
        ("AB", "BC", False),
    ],
)
def test_answers_of_one_shape_differ_in_digits_and_variables_alone(one: str, other: str, same: bool) -> None:
    assert (shape_of(one) == shape_of(other)) is same
    shapes = AnswerShapes()
    assert (shapes.add(one) == shapes.add(other)) is same
    assert shapes.examples == [one] if same else [one, other]


def test_rational_numbers_have_no_shape() -> None:
    assert [AnswerShapes().add(answer) for answer in ("12", "-0.5", "\\frac{3}{4}", "1e-05")] == [-1] * 4


def indexed(threshold: float, texts: Sequence[str]) -> SimilarTexts:
    shingles = Shingles()
    for text in texts:
        shingles.add(without_letters(words_of(text)))
    return SimilarTexts(threshold, shingles)


def pairs(text: str) -> set[object]:
    words = words_of(text)
    return set(pairwise(words)) or set(words)


TEXTS = st.lists(
    st.lists(st.sampled_from(["aa", "bb", "cc", "dd", "ee", "ff"]), max_size=9).map(" ".join), min_size=1, max_size=12
)


@settings(deadline=None)
@given(TEXTS, st.sampled_from([0.2, 0.5, 0.8, 1.0]), st.data())
def test_no_similar_pair_is_missed(texts: list[str], threshold: float, data: st.DataObject) -> None:
    """Against comparing each with each, with sets of pairs instead of hashes."""
    similar = indexed(threshold, texts)
    members: dict[int, set[object]] = {}
    for number, text in enumerate(texts):
        own = pairs(text)
        every = [(len(own & other) / len(own | other), each) for each, other in members.items() if own]
        # Of members with the same pairs, the last one answers for all.
        latest = {frozenset(other): each for each, other in members.items()}
        expected = [
            (near, each) for near, each in every if near >= threshold and latest[frozenset(members[each])] == each
        ]
        assert similar.neighbors(number) == sorted(expected, key=lambda each: (-each[0], each[1]))
        if data.draw(st.booleans()):
            similar.add(number)
            members[number] = own


def test_layout_case_and_punctuation_do_not_count() -> None:
    assert words_of("Let $X = \\left( 1, 2\\right)$.") == words_of("let $x=(1,2)$")


# --- evaluation sets ----------------------------------------------------------------------------------------------


class Against:
    """Evaluation problems, against which other problems are held one after the other."""

    def __init__(self, *questions: str, words: int = 8, threshold: float = 0.7, counted: Sequence[str] = ()) -> None:
        self._questions, self._words, self._threshold, self._counted = questions, words, threshold, counted

    def find_match(self, question: str) -> ContaminationMatch | None:
        problems = [Problem(f"e{number}", each, "1") for number, each in enumerate(self._questions)]
        similar = indexed(self._threshold, [*self._questions, *self._counted, question])
        sets = EvaluationIndex({"set": problems}, self._words, similar)
        last = len(self._questions) + len(self._counted)
        for text in self._counted:
            sets.count_phrases(words_of(text))
        sets.drop_phrases()
        found = sets.find_ngram("p", words_of(question))
        assert found is None or sets.may_share(last)
        return found or sets.near_match("p", similar.neighbors(last))


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
    hit = Against(DISTANCE).find_match(question)
    assert (hit.reason if hit else None) == reason


def test_a_problem_that_is_nearly_the_same_is_found() -> None:
    changed = DISTANCE.replace("60", "70").replace("3", "4")
    match = ContaminationMatch("p", "set", "e0", "near_duplicate", "0.68")
    assert Against(DISTANCE, words=15, threshold=0.6).find_match(changed) == match
    assert Against(DISTANCE, words=15, threshold=0.8).find_match(changed) is None


def test_a_short_problem_is_found_by_all_of_its_words() -> None:
    sets = Against("What is 7 times 9?")
    hit = sets.find_match("Alice asks: what is 7 times 9, Bob?")
    assert hit is not None
    assert (hit.evaluation_problem, hit.shared) == ("e0", "what is 7 times 9")
    assert sets.find_match("What is 7 times 8?") is None


LINE = (
    "The line $y = mx + b$ passes through the points $P$ and $Q$. Find the distance from $P$ to the origin if $m = 2$."
)


@pytest.mark.parametrize("letters", ["yk xc PQk", "yk kt ABk", "zu wv EFu"])
def test_a_problem_with_other_letters_is_found(letters: str) -> None:
    """Not a problem that shares only its form."""
    first, second, third = letters.split()
    renamed = LINE.translate(str.maketrans("PQm", third)).replace("y =", f"{first[0]} =").replace("b$", f"{second[1]}$")
    assert Against(LINE).find_match(renamed) is not None
    other = (
        "Let $a$ and $b$ be real numbers. Find the distance from $a$ to the origin if $b = 2$ and the line is $x = 1$."
    )
    assert Against(LINE).find_match(other) is None


def test_single_word_is_found_in_any_problem() -> None:
    assert Against("Why?").find_match("But tell me: why?") is not None
    assert Against("Why?").find_match("But tell me: how?") is None


@settings(deadline=None)
@given(TEXTS, TEXTS, st.integers(1, 5))
def test_no_shared_words_in_a_row_are_missed(evaluated: list[str], texts: list[str], size: int) -> None:
    """Against a search for each n-gram of each evaluation problem in each text, the longest first."""
    similar = indexed(0.99, [*evaluated, *texts])
    sets = EvaluationIndex({"set": [Problem(f"e{n}", each, "1") for n, each in enumerate(evaluated)]}, size, similar)
    for number, text in enumerate(texts):
        words = words_of(text)
        expected = None
        for length in range(size, 0, -1):
            for start in range(len(words) - length + 1):
                for place, other in enumerate(map(words_of, evaluated)):
                    window = words[start : start + length]
                    is_ngram = length == min(size, len(other))
                    starts = range(len(other) - length + 1)
                    if is_ngram and any(other[first : first + length] == window for first in starts):
                        enough = overlap_fraction(words, other) >= 0.6
                        expected = expected or (enough and (place, " ".join(window))) or None
        found = sets.find_ngram("p", words)
        assert (None if found is None else (int(found.evaluation_problem[1:]), found.shared)) == expected
        assert sets.may_share(len(evaluated) + number) or expected is None


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
    hit = Against(other, evaluated, threshold=0.95).find_match(question)
    assert (None if hit is None else hit.evaluation_problem) == ("e1" if found else None)


def test_words_that_many_problems_have_are_a_phrase() -> None:
    phrase = "where m and n are relatively prime positive integers. Find m + n."
    evaluated = f"The area of the lake is m/n, {phrase}"
    questions = [f"Bob has {number} m/n, {phrase}" for number in range(6)]
    few, many = (Against(evaluated, threshold=0.9, counted=questions[:count]) for count in (5, 6))
    assert few.find_match(questions[0]) is not None
    assert many.find_match(questions[0]) is None
    assert many.find_match(evaluated) is not None  # the rest of it is not a phrase


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
