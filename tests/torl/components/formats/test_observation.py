"""Observation texts, one by one, and how they are spliced."""

import pytest

from builders import failed, turn
from scripted_engine import ENCODER
from torl._core import Scanner, Vocabulary
from torl.base.options import ChosenFrom
from torl.base.types import Block, ObservationText, Outcome, OutcomeStatus, ToolRequest
from torl.components.formats import FORMATS, Format
from torl.components.formats.blocks import NO_CODE
from torl.components.formats.observation import ErrorStyle, render_observation, render_outcome, truncate_middle
from torl.components.tools.python import outcome_of
from torl.recipes.tora import ToRAFormat
from torl.recipes.torl import ToRLFormat, ToRLOptions
from torl.recipes.zerotir import TOO_LONG, ZeroTIRFormat, ZeroTIROptions
from torl_sandbox import Execution

TRACEBACK = (
    "Traceback (most recent call last):\n  File \"<code>\", line 1, in <module>\nNameError: name 'a' is not defined\n"
)
LINE = "NameError: name 'a' is not defined"


def fits(text: ObservationText, max_length: int) -> bool:
    """As if each character were a token."""
    return len(text) <= max_length


def outcome(status: OutcomeStatus = OutcomeStatus.OK, stdout: str = "", line: str | None = None) -> Outcome:
    failed = status is OutcomeStatus.ERROR
    execution = Execution(
        status=status,
        stdout=stdout,
        stderr="",
        exception_type=line.split(":")[0] if line else None,
        exception_line=line,
        traceback=TRACEBACK if failed else None,
        cpu_seconds=0.0,
        wall_seconds=0.0,
        peak_memory_bytes=0,
    )
    return outcome_of(execution)


ERROR = outcome(OutcomeStatus.ERROR, "before\n", LINE)


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        ("391\n", "391"),
        ("391", "391"),
        ("1\n2\n", "1\n2"),
        ("\n 1 \n\n", "\n 1 "),
        ("", "[no output]"),
        ("\n", "[no output]"),
        ("```\n", "```"),
    ],
)
def test_successful_run_shows_its_output(stdout: str, expected: str) -> None:
    assert render_outcome(outcome(stdout=stdout)) == expected


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ("last_line", LINE),
        ("output_first", "before"),
        ("traceback", TRACEBACK.rstrip("\n")),
        ("bare_traceback", f"Traceback (most recent call last):\n  line 1, in <module>\n{LINE}"),
        ("tagged", f"<error>{LINE}</error>"),
        ("hidden", ""),
    ],
)
def test_exception_is_shown_by_error_style(errors: ErrorStyle, expected: str) -> None:
    assert render_outcome(ERROR, errors) == expected


def test_output_before_an_exception_comes_first_on_request() -> None:
    printed = outcome(OutcomeStatus.ERROR, "one\ntwo\n", LINE)
    assert render_outcome(printed, "output_first") == "one\ntwo"
    assert render_outcome(printed) == LINE
    assert render_outcome(outcome(OutcomeStatus.TIMEOUT, "one\n"), "output_first") == "one"


def test_a_bare_traceback_has_no_carets() -> None:
    """As ZeroTIR's code shows standard error."""
    rendered = failed(LINE, traceback='Traceback:\n  File "/tmp/a.py", line 3\n    1 +* 2\n       ^\nSyntaxError: no\n')
    assert render_outcome(rendered, "bare_traceback") == "Traceback:\n  line 3\n    1 +* 2\n       \nSyntaxError: no"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (OutcomeStatus.TIMEOUT, "[time limit exceeded]"),
        (OutcomeStatus.MEMORY, "[memory limit exceeded]"),
        (OutcomeStatus.OUTPUT_LIMIT, "[output limit exceeded]"),
        (OutcomeStatus.CRASH, "[interpreter crashed]"),
    ],
)
def test_limits_say_which(status: OutcomeStatus, expected: str) -> None:
    ended = outcome(status, "partial output\n")
    assert render_outcome(ended) == expected
    assert render_outcome(ended, "traceback") == expected
    assert render_outcome(ended, "tagged") == f"<error>{expected}</error>"
    assert render_outcome(ended, "hidden") == ""
    # The limit was hit inside an exception that Python could still raise.
    raised = outcome(status, "partial output\n", "MemoryError: no room")
    assert render_outcome(raised) == expected
    assert render_outcome(raised, "tagged") == f"<error>{expected}</error>"


def test_a_run_without_output_is_not_a_time_out() -> None:
    assert render_outcome(outcome()) != render_outcome(outcome(OutcomeStatus.TIMEOUT))


def test_cap_keeps_head_and_tail() -> None:
    text = "a" * 128 + "b" * 200 + "c" * 128
    assert truncate_middle(text, 256) == "a" * 128 + "..." + "c" * 128
    assert truncate_middle("x" * 256, 256) == "x" * 256
    assert truncate_middle("x" * 257, 256) == "x" * 128 + "..." + "x" * 128
    assert truncate_middle("abcdef", 1) == "..."
    assert render_outcome(outcome(stdout="7" * 1000 + "\n"), max_characters=10) == "77777...77777"


@pytest.mark.parametrize(
    ("overshoot", "expected"),
    [
        (b"", "\n391\n```\n"),
        (b"\n", "391\n```\n"),
        (b"\n3", "91\n```\n"),  # the model guessed right
        (b"\n4", "\n391\n```\n"),  # it guessed wrong: its guess stays, the truth follows
        (b"s", "\n391\n```\n"),
        (b"\n391\n```\n\n", "\n391\n```\n"),
    ],
)
def test_overshoot_of_the_marker_token_is_not_repeated(overshoot: bytes, expected: str) -> None:
    assert render_observation(ToRLFormat(), turn(), [outcome(stdout="391\n")], overshoot, fits) == expected


def test_an_overshoot_inside_a_character_is_kept() -> None:
    printed = outcome(stdout="é\n")
    assert render_observation(ToRLFormat(), turn(), [printed], b"\n\xc3", fits) == "\né\n```\n"
    assert render_observation(ToRLFormat(), turn(), [printed], b"\n\xc3\xa9", fits) == "\n```\n"


@pytest.mark.parametrize(("form", "place"), [(ToRLFormat(), 2), (ZeroTIRFormat(), 1)])
def test_where_a_turn_ends(form: Format, place: int) -> None:
    vocabulary = Vocabulary([b"```python\nx\n```\n", b"```output", b" more"])
    scan = Scanner(vocabulary, form.stop_condition()).feed([0, 1, 2])
    assert scan.overshoot is not None
    assert scan.consumed == place


@pytest.mark.parametrize("form", [ToRLFormat(), ZeroTIRFormat(), ToRAFormat()])
def test_the_last_block_of_the_turn_runs(form: Format) -> None:
    blocks = [Block("a", 0, 1, 0), Block("b", 2, 3, 2)]
    assert form.parse_calls(turn(blocks=blocks)) == [ToolRequest("python", {"code": "b"})]
    assert form.speculative_call("a") == ToolRequest("python", {"code": "a"})
    assert form.parse_calls(turn()) == [NO_CODE]


def test_call_without_code_fails_with_a_message() -> None:
    assert not NO_CODE.outcome.ok
    text = render_observation(ToRLFormat(), turn(), [NO_CODE.outcome], b"", fits)
    assert text == "\nNoCode: there was no complete ```python block to run\n```\n"


# --- ZeroTIR ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overshoot", "expected"),
    [
        (b"", "\n```output\n391\n```\n\n\n"),
        (b"\n", "```output\n391\n```\n\n\n"),  # the closing fence's token holds its newline
        (b"\n\n", "\n```output\n391\n```\n\n\n"),
        (b"python", "\n```output\n391\n```\n\n\n"),  # a fence that closes one block and opens the next
    ],
)
def test_observation_of_zerotir(overshoot: bytes, expected: str) -> None:
    assert render_observation(ZeroTIRFormat(), turn(), [outcome(stdout="391\n")], overshoot, fits) == expected


def test_zerotir_says_that_a_result_is_too_long() -> None:
    """The cap counts tokens, fences included, as in ZeroTIR's code."""
    form = ZeroTIRFormat(ZeroTIROptions(max_observation_tokens=100))
    frame = len("\n```output\n\n```\n\n\n")
    short, long = ("7" * (length - frame) for length in (100, 101))
    assert render_observation(form, turn(), [outcome(stdout=short)], b"", fits) == f"\n```output\n{short}\n```\n\n\n"
    assert render_observation(form, turn(), [outcome(stdout=long)], b"", fits) == f"\n```output\n{TOO_LONG}\n```\n\n\n"
    assert ENCODER.fits("print", len("print") - 1)
    assert (
        render_observation(form, turn(), [outcome(stdout="print " * 20)], b"", ENCODER.fits)
        != f"\n```output\n{TOO_LONG}\n```\n\n\n"
    )


def test_zerotir_shows_errors_as_the_option_says() -> None:
    options: list[ErrorStyle] = ["traceback", "hidden"]
    outputs = [
        render_observation(ZeroTIRFormat(ZeroTIROptions(error_style=errors)), turn(), [ERROR], b"\n", fits)
        for errors in options
    ]
    assert outputs == [f"```output\n{TRACEBACK}```\n\n\n", "```output\n\n```\n\n\n"]


# --- ToRA ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (outcome(stdout="391\n"), "391"),
        (outcome(stdout="\n 391 \n"), "391"),
        (outcome(stdout=""), "Done"),
        (outcome(stdout=" \n"), "Done"),
        (ERROR, LINE),  # earlier output is not shown
        (outcome(OutcomeStatus.TIMEOUT, "1\n2\n"), "Timeout Error"),
        (outcome(stdout="7" * 401), "7" * 200 + "..." + "7" * 200),
    ],
)
def test_observation_of_tora(shown: Outcome, expected: str) -> None:
    """`batch_apply` of ToRA's `python_executor.py`: the result or else the report, both stripped and cut."""
    assert render_observation(ToRAFormat(), turn(), [shown], b"", fits) == f"\n{expected}\n```\n"
    assert render_observation(ToRAFormat(), turn(), [shown], b"\n", fits) == f"{expected}\n```\n"


def test_formats_come_by_name() -> None:
    choice = ChosenFrom(FORMATS, "format", "torl")
    torl = choice.choose({"max_observation_characters": 9}).make()
    assert isinstance(torl, ToRLFormat)
    assert torl.options == ToRLOptions(error_style="last_line", max_observation_characters=9)
    zerotir = choice.choose({"name": "zerotir", "max_observation_tokens": 77}).make()
    assert isinstance(zerotir, ZeroTIRFormat)
    assert zerotir.options == ZeroTIROptions(error_style="traceback", max_observation_tokens=77)
    assert [torl.name, zerotir.name, choice.choose("tora").make().name] == ["torl", "zerotir", "tora"]
