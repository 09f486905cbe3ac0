"""Results in the text of a whole response: they begin and end where an episode of the format has them."""

import pytest

from chat_models import FAMILIES, message
from torl.base.options import load_object
from torl.base.types import Block, Outcome, OutcomeStatus, StopReason, Turn
from torl.components.formats import FORMATS, Format, HermesFormat
from torl.components.formats.results import split_results, unread_markup

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


PYTHONIC = "with calls written as [NAME(KEY=VALUE)], which no format reads"
LISTED = "with calls in a list of JSON, which no format reads"


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
        ('<think>\n[weather(city="Rome")]</think> [1, 2] [f(x)] \\frac{1}{2}', []),
        ('[weather(city="Rome")]<|im_end|>', [PYTHONIC]),
        ('<think>hm</think>\n[Market Trends(kind="now"), time()]', [PYTHONIC]),
        ('<|tool_call_start|>[now(), weather(\n city="Rome")]<|tool_call_end|> Soon.', [PYTHONIC]),
        ('[{"name": "weather", "arguments": {"city": "Rome"}}, {"name": "now", "arguments": {}}]', [LISTED]),
        ('<|tool_call_start|>[ {"name":"weather","parameters":{}}]<|tool_call_end|>', [LISTED]),
        ('[{"name": "Ada", "age": 36}] and a[{"name": "a", "arguments": 1}]', []),
        (
            "<information>1</information>",
            ["with results between <information> and </information>, as rollout.format = 'search_r1' reads them"],
        ),
    ],
)
def test_markup_that_a_format_does_not_read_is_found(text: str, found: list[str]) -> None:
    assert list(unread_markup(text, HermesFormat())) == found


@pytest.mark.parametrize("other", FAMILIES)
@pytest.mark.parametrize("name", FORMATS)
def test_calls_of_another_format_are_found(name: str, other: str) -> None:
    """Llama's, which have no markup, are also read inside of Hermes' tags."""
    text = message(other, "1")
    found = list(unread_markup(text, format_of(name)))
    read = name == other or (name, other) == ("llama3", "hermes")
    assert found == (
        [] if read else [f"with calls that rollout.format = {name!r} cannot read, as {other!r} reads them"]
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_malformed_calls_of_every_family_are_found(family: str) -> None:
    text = message(family, "1").replace('"code": "1"}', '"code": 1')
    assert list(unread_markup(text, format_of(family))) == [f"with calls that rollout.format = {family!r} cannot read"]
