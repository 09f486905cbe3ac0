"""Behaviors of responses with code, on small responses whose behavior is plain, and on transcripts of a real model."""

import json
import re
from dataclasses import replace

import pytest

from builders import call, failed, printed, scored, scored_group, trajectory
from places import ROOT
from torl.base.types import ScoredGroup, ScoredTrajectory
from torl.run.records import metric_names as names
from torl.run.records.behaviors import (
    called_names,
    changes_code,
    code_behaviors,
    code_lines,
    cross_check,
    difficulty_behaviors,
    invents_results,
    runs_around_answer,
    same_value,
    words_before_code,
)

TRANSCRIPTS = ROOT.parent / "shared" / "data" / "tora_gsm8k_transcripts.jsonl"
BLOCK = "```python\nx\n```\n"
CODE = "# by sympy\nfrom sympy import symbols, solve\n\nx = symbols('x')\nif (x):\n    print(solve(x - 1))  # one\n"


def checked(before: str, *outputs: str | None, correct: bool = True) -> ScoredTrajectory:
    """A response that says something, then has runs which print these (None: they fail), then ends."""
    calls = [call("x\n", failed() if output is None else printed(output)) for output in outputs]
    turns = [(before if index == 0 else "") + "\n" + BLOCK for index in range(len(calls))]
    return scored(trajectory(*turns, "end", calls=calls), correct)


def test_lines_and_names_of_code() -> None:
    assert code_lines(CODE) == 4
    assert called_names(CODE) == {"symbols", "print", "solve"}
    assert called_names("import numpy as np\nnp.linalg.inv ([[1]])\ndef f(x): return not (x)") == {"np.linalg.inv", "f"}
    assert code_lines("") == 0


def test_code_counts_once_for_each_block() -> None:
    members = [
        scored(trajectory("```python\na()\n```\n", "```python\na()\nb()\nc()\n```\n")),
        scored(trajectory("none")),
    ]
    found = code_behaviors(members)
    assert found[names.CODE_LINES] == 2
    assert found[names.CODE_NAMES] == 2
    assert names.CODE_LINES not in code_behaviors(members[1:])


@pytest.mark.parametrize(
    ("before", "outputs", "check"),
    [
        (r"so \boxed{12}. Check:", ["12\n"], ("12", "12")),
        (r"so \boxed{12}. Check:", ["x = 3\n13\n\n"], ("12", "13")),
        (r"\boxed{1} no, \boxed{2}", ["2"], ("2", "2")),  # the answer that counts
        (r"so \boxed{12}", [None, "12"], ("12", "12")),  # the first that ran
        (r"so \boxed{12}", ["", "11", "12"], ("12", "11")),
        (r"so \boxed{12}", [None], None),
        (r"so \boxed{12", ["12"], None),
        ("so x = 12", ["12"], None),
        (r"The answer goes in \boxed{}.", ["12"], None),
    ],
)
def test_cross_check_is_a_call_after_a_boxed_answer(
    before: str, outputs: list[str | None], check: tuple[str, str] | None
) -> None:
    assert cross_check(checked(before, *outputs).trajectory) == check


def test_answer_after_the_code_is_not_a_cross_check() -> None:
    assert cross_check(trajectory(BLOCK + r"\boxed{1}", "end", calls=[call("x\n", printed("1"))])) is None


def test_calls_of_a_turn_check_text_before_the_first() -> None:
    text = "\\boxed{1}\n" + BLOCK + "\\boxed{2}\n" + BLOCK
    calls = [call("x\n", failed()), call("x\n", printed("3"))]
    first = trajectory(text, "end", calls=calls[1:])
    assert cross_check(first) == ("2", "3")
    both = replace(first, tool_calls=tuple(replace(each, start=first.turns[0].stop) for each in calls))
    assert cross_check(both) == ("1", "3")


def test_shares_of_cross_checks() -> None:
    box = r"\boxed{12}"
    members = [checked(box, "12"), checked(box, "13"), checked(box, "13", correct=False), checked("no", "12")]
    found = code_behaviors(members)
    assert found[names.CROSS_CHECKED] == 3 / 4
    assert found[names.CROSS_CHECK_AGREED] == pytest.approx(1 / 3)
    assert found[names.CROSS_CHECK_CORRECTED] == 1 / 2
    assert code_behaviors(members[3:])[names.CROSS_CHECKED] == 0
    assert names.CROSS_CHECK_AGREED not in code_behaviors(members[3:])
    assert names.CROSS_CHECK_CORRECTED not in code_behaviors(members[:1])


def test_the_same_value_in_another_notation() -> None:
    assert same_value("$12$", " 12 ")
    assert same_value("12", "12.0")
    assert same_value(r"(1,\, 2)", "(1, 2)")
    assert not same_value("12", "x = 12")
    assert not same_value("1/2", "0.5")  # as texts; the grader is not asked


@pytest.mark.parametrize(
    ("turns", "outputs", "around"),
    [
        ([BLOCK, r"\boxed{1}"], ["1"], (True, False)),
        ([r"\boxed{1}" + BLOCK, "end"], ["1"], (False, True)),
        ([BLOCK, r"\boxed{1} check:" + BLOCK, r"\boxed{1}"], ["1", "1"], (True, True)),
        ([BLOCK, r"\boxed{1}" + BLOCK], ["1", None], (True, False)),  # the second run fails
        ([BLOCK, "no answer"], ["1"], (True, False)),
        ([BLOCK], [None], (False, False)),
    ],
)
def test_runs_are_before_or_after_the_first_answer(
    turns: list[str], outputs: list[str | None], around: tuple[bool, bool]
) -> None:
    calls = [call("x\n", failed() if output is None else printed(output)) for output in outputs]
    assert runs_around_answer(trajectory(*turns, calls=calls)) == around


def test_words_before_the_first_block_are_counted() -> None:
    assert words_before_code(trajectory("one two\n" + BLOCK, "three", calls=[call("x\n", printed("1"))])) == 2
    assert words_before_code(trajectory("one two three", "four\n" + BLOCK)) == 4
    assert words_before_code(trajectory("only text")) is None
    long = scored(trajectory("word " * 30 + "\n" + BLOCK))
    short = scored(trajectory("word " * 29 + "\n" + BLOCK))
    assert code_behaviors([long, short, scored(trajectory("text"))])[names.REASONED_BEFORE_CODE] == 1 / 2


@pytest.mark.parametrize(
    ("codes", "changed"),
    [
        (["a\nb\nc\n", "a\nb\nd\n"], False),  # 2 of 4
        (["a\nb\nc\n", "a\nd\ne\n"], True),  # 1 of 5
        (["a = 1\n", "a=1  \n\n# note\n"], False),
        (["a\n", "a\nb\n", "c\n"], True),
        (["a\n"], None),
    ],
)
def test_changed_code_shares_less_than_half_of_the_lines(codes: list[str], changed: bool | None) -> None:
    calls = [call(code, printed("1")) for code in codes]
    assert changes_code(trajectory(*[f"```python\n{code}```\n" for code in codes], "end", calls=calls)) is changed


def test_results_of_runs_are_not_invented() -> None:
    ran = trajectory("```python\nx\n```\n```output", "so 1", calls=[call("x\n", printed("1"))])
    invented = trajectory("```python\nx\n```\n```output\n7\n```\nso 7")
    assert (invents_results(ran), invents_results(invented)) == (False, True)
    assert invents_results(replace(invented, format="mine:Format")) is None
    assert code_behaviors([scored(ran), scored(invented)])[names.INVENTED_RESULTS] == 1 / 2


def test_changed_answers_are_counted_within_cross_checks() -> None:
    def corrected(final: str) -> ScoredTrajectory:
        calls = [call("x\n", printed("2"))]
        return scored(trajectory("\\boxed{1}\n" + BLOCK, f"so \\boxed{{{final}}}", calls=calls))

    assert code_behaviors([corrected("2"), corrected("1.0"), corrected("1")])[
        names.CROSS_CHECK_CHANGED
    ] == pytest.approx(1 / 3)


def test_code_of_hard_and_easy_groups_is_measured_apart() -> None:
    def group_with(lines: int, *correct: bool) -> ScoredGroup:
        code = "```python\n" + "x\n" * lines + "```\n"
        return scored_group(*(scored(trajectory(code, sample=index), each) for index, each in enumerate(correct)))

    groups = [group_with(2, True, False), group_with(4, True, True), group_with(9, False, False), group_with(99, True)]
    assert difficulty_behaviors(groups) == {names.CODE_LINES_EASY: 3, names.CODE_LINES_HARD: 9}


# --- transcripts of a real model --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def transcripts() -> list[dict[str, str]]:
    if not TRANSCRIPTS.exists():
        pytest.skip(f"the transcripts are not at {TRANSCRIPTS}")
    with TRANSCRIPTS.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def replayed(line: dict[str, str]) -> ScoredTrajectory:
    """The transcript as an episode with one call, or as one turn without."""
    head, marker, rest = line["transcript"].partition("```output")
    code = "".join(re.findall(r"```python\n(.*?)^```", head, re.MULTILINE | re.DOTALL))
    if not marker:
        return scored(trajectory(head), False)
    output, _, tail = rest.partition("\n```")
    outcome = failed(output) if "Error" in output else printed(output)
    return scored(trajectory(head + marker, tail, calls=[call(code, outcome)]), line["prediction"] == line["answer"])


def test_behaviors_of_real_transcripts_are_those_of_their_text(transcripts: list[dict[str, str]]) -> None:
    """Each count against one expression over the whole text of the transcripts."""
    texts = [line["transcript"] for line in transcripts]
    found = code_behaviors([replayed(line) for line in transcripts])
    blocks = [block for text in texts for block in re.findall(r"```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
    code = [line for block in blocks for line in block.split("\n") if re.match(r"\s*[^\s#]", line)]
    assert found[names.CODE_LINES] == pytest.approx(len(code) / len(blocks))
    ran = [text for text in texts if re.search("```output", text) and not re.search(r"```output[^`]*Error", text)]
    before = [text for text in ran if not re.search(r"\\boxed.*?```output", text, re.DOTALL)]
    assert len(before) > 1000
    assert found[names.RAN_BEFORE_ANSWER] == pytest.approx(len(before) / len(ran))
    assert found[names.CROSS_CHECKED] == pytest.approx((len(ran) - len(before)) / len(texts))
    long = [text for text in texts if len(re.split("```python", text)[0].split()) >= 30]
    assert found[names.REASONED_BEFORE_CODE] == pytest.approx(len(long) / len(texts))
    assert names.CHANGED_CODE not in found  # each has one block
    assert found[names.INVENTED_RESULTS] == 0
    unplayed = code_behaviors([scored(trajectory(text)) for text in texts])
    assert unplayed[names.INVENTED_RESULTS] == pytest.approx(sum("```output" in text for text in texts) / len(texts))
