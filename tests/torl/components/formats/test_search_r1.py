"""Search-R1's format: queries as its code finds them, passages in its tags without loss, cut where they are long."""

from typing import Any

import pytest

from builders import asked, play_trajectories, player, turn
from scripted_engine import ENCODER, VOCABULARY, ScriptedEngine, ScriptedInterpreter
from scripted_run import ScriptedTool
from torl.base.types import FinishReason, ObservationText, Outcome, OutcomeStatus
from torl.components.formats.observation import render_observation
from torl.recipes.search_r1 import INVALID, NO_QUERY, SearchR1Format

FORM = SearchR1Format()


def asked_by(text: str) -> Any:
    (found,) = FORM.parse_calls(turn(text))
    return found


def fits(text: ObservationText, max_length: int) -> bool:
    """As if each character were a token."""
    return len(text) <= max_length


def shown(outcome: Outcome, overshoot: bytes = b"", max_length: int = 500) -> str:
    text = render_observation(SearchR1Format(max_length), turn(), [outcome], overshoot, fits)
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("<think>Hm.</think>\n<search> capital of France </search>", "capital of France"),
        ("<search>two\nlines</search>", "two\nlines"),
        ("<search>a <search> b</search>", "a <search> b"),  # as its regular expression finds it
        ("</search>", None),
        ("<search>  </search>", None),
    ],
)
def test_query_is_the_text_between_the_tags(text: str, query: str | None) -> None:
    asked_for = asked_by(text)
    if query is None:
        assert asked_for == NO_QUERY
    else:
        assert (asked_for.tool, asked_for.arguments) == ("search", {"query": query})


def test_passages_return_between_tags_without_sampled_overlap() -> None:
    outcome = Outcome(OutcomeStatus.OK, "Doc 1(Title: t) text\n")
    framed = "\n\n<information>Doc 1(Title: t) text</information>\n\n"
    assert shown(outcome) == framed
    assert shown(outcome, b"\n\n") == framed.removeprefix("\n\n")
    assert shown(Outcome(OutcomeStatus.ERROR, "no", "Error")) == "\n\n<information>no</information>\n\n"


@pytest.mark.parametrize("max_length", [31, 32, 60, 130, 131])
def test_long_passages_are_cut_and_the_tags_stay_whole(max_length: int) -> None:
    text = shown(Outcome(OutcomeStatus.OK, "x" * 100), max_length=max_length)
    assert text == f"\n\n<information>{'x' * min(100, max_length - 31)}</information>\n\n"
    assert len(text) == min(max_length, 131)


async def test_a_model_searches_reads_and_answers() -> None:
    """Retrieved tokens carry no loss, everything sampled does, and the answer's tag ends the response."""
    turns = {
        "0": "<think>Who?</think>\n<search>capital</search>",
        "1": "</search>",
        "2": "<answer>Paris</answer> and more that is never sampled",
    }
    engine = ScriptedEngine(lambda request: ENCODER.encode(turns[request.rsplit("/", 1)[1]]))
    passages = "Doc 1(Title: France) Its capital is Paris."
    playing = player(engine, ScriptedInterpreter(), form=FORM, max_tool_calls=3, stop=("</answer>",), limit=900)
    tool = ScriptedTool(outcome=lambda _: Outcome(OutcomeStatus.OK, passages))
    playing.tools = {"search": tool}
    (played,) = await play_trajectories(playing, [asked(token_ids=(5, 6))], 0, 1)
    searched, invalid = played.tool_calls
    assert (searched.request and searched.request.arguments, tool.calls) == ({"query": "capital"}, 1)
    assert searched.observation == f"\n\n<information>{passages}</information>\n\n"
    assert (invalid.request, invalid.observation) == (None, INVALID)
    assert played.finish_reason is FinishReason.STOP
    assert played.turns[-1].text == "<answer>Paris</answer>"
    assert played.sampled_text == "\n".join([turns["0"], turns["1"], "<answer>Paris</answer>"])
    observed = VOCABULARY.decode(played.token_ids_T[~played.loss_mask_T].tolist())
    assert observed == searched.observation + invalid.observation
    assert not played.rollout_logprobs_T[~played.loss_mask_T].any()
