"""Observation texts, one by one, and how they are spliced."""

import pytest

from torl._core import Vocabulary
from torl.config import RolloutConfig
from torl.rollout.formats import NO_CODE, TOO_LONG, ToRLFormat, ZeroTIRFormat, make_format
from torl.rollout.observation import cap, observe
from torl.types import Outcome, OutcomeStatus

TRACEBACK = (
    "Traceback (most recent call last):\n  File \"<code>\", line 1, in <module>\nNameError: name 'a' is not defined\n"
)
LINE = "NameError: name 'a' is not defined"


def outcome(status: OutcomeStatus = OutcomeStatus.OK, stdout: str = "", line: str | None = None) -> Outcome:
    failed = status is OutcomeStatus.ERROR
    return Outcome(
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
def test_a_run_that_ended_well_shows_what_it_printed(stdout: str, expected: str) -> None:
    assert observe(outcome(stdout=stdout)) == expected


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ("last_line", LINE),
        ("traceback", TRACEBACK.rstrip("\n")),
        ("tagged", f"<error>{LINE}</error>"),
        ("hidden", ""),
    ],
)
def test_an_exception_shows_what_the_option_says(errors: str, expected: str) -> None:
    assert observe(ERROR, errors) == expected


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
    assert observe(ended) == expected
    assert observe(ended, "traceback") == expected
    assert observe(ended, "tagged") == f"<error>{expected}</error>"
    assert observe(ended, "hidden") == ""
    # The limit was hit inside an exception that Python could still raise.
    raised = outcome(status, "partial output\n", "MemoryError: no room")
    assert observe(raised) == expected
    assert observe(raised, "tagged") == f"<error>{expected}</error>"


def test_a_run_without_output_is_not_a_time_out() -> None:
    assert observe(outcome()) != observe(outcome(OutcomeStatus.TIMEOUT))


def test_cap_keeps_head_and_tail() -> None:
    text = "a" * 128 + "b" * 200 + "c" * 128
    assert cap(text, 256) == "a" * 128 + "..." + "c" * 128
    assert cap("x" * 256, 256) == "x" * 256
    assert cap("x" * 257, 256) == "x" * 128 + "..." + "x" * 128
    assert cap("abcdef", 1) == "..."
    assert observe(outcome(stdout="7" * 1000 + "\n"), max_characters=10) == "77777...77777"


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
def test_what_the_marker_token_holds_already_is_not_repeated(overshoot: bytes, expected: str) -> None:
    assert ToRLFormat().answer(outcome(stdout="391\n"), overshoot) == expected


def test_an_overshoot_inside_a_character_is_kept() -> None:
    printed = outcome(stdout="é\n")
    assert ToRLFormat().answer(printed, b"\n\xc3") == "\né\n```\n"
    assert ToRLFormat().answer(printed, b"\n\xc3\xa9") == "\n```\n"


def test_a_turn_ends_as_long_as_calls_are_left() -> None:
    vocabulary = Vocabulary([b"```python\nx\n```\n", b"```output"])

    def ends(form: ToRLFormat | ZeroTIRFormat, calls: int) -> int | None:
        end = form.turn_end(calls, at_line_start=True)
        return None if end is None else end.scanner(vocabulary).feed([0, 1]).consumed

    for form, place in ((ToRLFormat(2), 2), (ZeroTIRFormat(len, 2), 1)):
        assert [ends(form, calls) for calls in range(4)] == [place, place, None, None]
        assert ends(form.limited(0), 0) is None
        assert ends(form.limited(20), 19) == place
        assert form.limited(20).name == form.name


def test_the_last_block_of_the_turn_runs() -> None:
    assert ToRLFormat().choose(["a", "b"]) == "b"
    assert ToRLFormat().choose([]) is None


def test_a_call_without_code_says_so_and_failed() -> None:
    assert not NO_CODE.ok
    assert ToRLFormat().answer(NO_CODE, b"") == "\nNoCode: there was no complete ```python block to run\n```\n"


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
def test_what_zerotir_puts_in(overshoot: bytes, expected: str) -> None:
    assert ZeroTIRFormat(len).answer(outcome(stdout="391\n"), overshoot) == expected


def test_zerotir_says_that_a_result_is_too_long() -> None:
    """The cap counts tokens, fences included, as in ZeroTIR's code."""
    form = ZeroTIRFormat(len, max_observation_tokens=100)
    frame = len("\n```output\n\n```\n\n\n")
    assert form.answer(outcome(stdout="7" * (100 - frame)), b"") == f"\n```output\n{'7' * (100 - frame)}\n```\n\n\n"
    assert form.answer(outcome(stdout="7" * (101 - frame)), b"") == f"\n```output\n{TOO_LONG}\n```\n\n\n"


def test_zerotir_shows_errors_as_the_option_says() -> None:
    shown = {errors: ZeroTIRFormat(len, errors=errors).answer(ERROR, b"\n") for errors in ("traceback", "hidden")}
    assert shown == {
        "traceback": f"```output\n{TRACEBACK}```\n\n\n",
        "hidden": "```output\n\n```\n\n\n",
    }


def test_formats_come_by_name() -> None:
    torl = make_format(RolloutConfig(max_tool_calls=3, max_observation_characters=9), len)
    assert torl == ToRLFormat(3, "last_line", 9)
    zerotir = make_format(RolloutConfig(format="zerotir", max_tool_calls=20, max_observation_tokens=77), len)
    assert zerotir == ZeroTIRFormat(len, 20, "last_line", 77)
    assert (torl.name, zerotir.name) == ("torl", "zerotir")
