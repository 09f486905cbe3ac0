"""Results in the text of a whole response: they begin and end where an episode of the format has them."""

import pytest

from torl.formats import FORMATS, Format, HermesFormat
from torl.formats.results import split_results, unread_markup
from torl.options import load_object
from torl.types import Block, Outcome, OutcomeStatus, StopReason, Turn

CODE = "print(6 * 7)"
# The text of a turn with a call, by the formats that show results between tags.
CALLS = {
    "torl": f"Let me see.\n```python\n{CODE}\n```\n```output",
    "tora": f"Let me see.\n```python\n{CODE}\n```\n```output",
    "zerotir": f"Let me see.\n```python\n{CODE}\n```",
    "retool": f"Let me see.\n<code>\n```python\n{CODE}\n```\n</code>",
    "artist": f"Let me see.\n<python>{CODE}</python>",
    "search_r1": "Let me see.\n<search>six times seven</search>",
}


def format_of(name: str) -> Format:
    target = FORMATS[name]
    made = (load_object(target) if isinstance(target, str) else target)()
    assert isinstance(made, Format)
    return made


@pytest.mark.parametrize("calls", [0, 1, 3])
@pytest.mark.parametrize("name", CALLS)
def test_parts_are_turns_and_observations(name: str, calls: int) -> None:
    format, text = format_of(name), CALLS[name]
    turn = Turn(0, 0, text, StopReason.CALL, (Block(CODE, 0, len(CODE), 0),), 0)
    observation = format.render_observation(turn, [Outcome(OutcomeStatus.OK, "42\n")])
    assert isinstance(observation, str)
    if observation.startswith("\n```output") and text.endswith("```output"):
        observation = observation.removeprefix("\n```output")
    whole = (text + observation) * calls + "So 42."
    parts = [*split_results(whole, format)]
    assert "".join(part for part, _ in parts) == whole
    assert [observed for _, observed in parts] == [False, True] * calls + [False]
    assert [part for part, _ in parts] == [text, observation] * calls + ["So 42."]


@pytest.mark.parametrize("text", ["", "No call.", "```python\n1\n```", "```output\nnever closed"])
def test_text_without_a_closed_result_is_the_models(text: str) -> None:
    assert [*split_results(text, format_of("torl"))] == [(text, False)] * bool(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<tool_call>\n{'name': 'f'}\n</tool_call>", ["with calls that rollout.format = 'hermes' cannot read"]),
        ('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n<tool_response>1</tool_response>', []),
        ("<tool_call>\n{", []),
        ("</information> <information>", []),
        (
            "<information>1</information>",
            ["with results between <information> and </information>, as rollout.format = 'search_r1' reads them"],
        ),
    ],
)
def test_markup_that_a_format_does_not_read_is_found(text: str, found: list[str]) -> None:
    assert list(unread_markup(text, HermesFormat())) == found
