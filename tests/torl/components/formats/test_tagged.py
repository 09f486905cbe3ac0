"""ReTool's and ARTIST's formats: code between tags, results between tags, and transcripts of their kind."""

import pytest

from builders import asked, play_trajectories, player, printed, turn
from scripted_engine import ENCODER, ScriptedEngine, ScriptedInterpreter
from torl.base.types import FinishReason, Outcome, OutcomeStatus, StopReason
from torl.components.formats.blocks import TaggedFormat, TaggedOptions
from torl.components.formats.observation import render_observation
from torl.recipes.artist import ArtistFormat
from torl.recipes.retool import ReToolFormat

RETOOL, ARTIST = ReToolFormat(), ArtistFormat()


def shown(form: TaggedFormat, outcome: Outcome, overshoot: bytes = b"") -> str:
    answer = render_observation(form, turn(), [outcome], overshoot, lambda *_: True)
    assert isinstance(answer, str)
    return answer


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("\n```python\nprint(1)\n```\n", "print(1)"),  # as ReTool's prompt asks for it
        ("print(1)", "print(1)"),
        ("\nx = 1\nprint(x)\n", "x = 1\nprint(x)"),
        ("a ```python\n1\n``` b ```python\n2\n```", "1"),
        ("```python\nprint(1)", "```python\nprint(1)"),
    ],
)
def test_code_is_the_fenced_block_or_the_text_between_the_tags(written: str, code: str) -> None:
    assert RETOOL.speculative_call(written).arguments == {"code": code}


def test_artist_code_is_the_text_between_the_tags() -> None:
    assert ARTIST.speculative_call(" print(1)\n").arguments == {"code": "print(1)"}


def test_results_stand_between_tags_and_errors_with_them() -> None:
    assert shown(RETOOL, printed("4\n")) == "\n<interpreter>\n4\n</interpreter>\n"
    assert shown(ARTIST, printed("4\n"), b"\n") == "<output>\n4\n</output>\n"
    assert shown(ARTIST, printed("")) == "\n<output>\n[no output]\n</output>\n"
    broken = Outcome(OutcomeStatus.ERROR, "NameError: x", "NameError", {"traceback": "Traceback\nNameError: x\n"})
    assert shown(RETOOL, broken) == "\n<interpreter>\nTraceback\nNameError: x\n</interpreter>\n"
    last_line = ReToolFormat(TaggedOptions(error_style="last_line", max_observation_characters=8))
    assert shown(last_line, broken) == "\n<interpreter>\nName...r: x\n</interpreter>\n"


@pytest.mark.parametrize(("form", "stop"), [(RETOOL, ()), (ARTIST, ("</answer>",))], ids=["retool", "artist"])
async def test_code_runs_at_closing_tag_and_output_is_masked(form: TaggedFormat, stop: tuple[str, ...]) -> None:
    opening, closing = form.tags
    turns = [
        f"<think>Two.</think>{opening}print(2){closing}",
        f"And{opening}print(x){closing}",
        f"<answer>2</answer>{opening}print(4){closing}",  # no call is left, or the response has ended before
    ]
    engine = ScriptedEngine(lambda request: ENCODER.encode(turns[int(request.rsplit("/", 1)[1])]))
    interpreter = ScriptedInterpreter(lambda code: "2\n" if code == "print(2)" else "")
    playing = player(engine, interpreter, form=form, max_tool_calls=2, stop=stop, limit=900)
    (played,) = await play_trajectories(playing, [asked(token_ids=(5, 6))], 0, 1)
    first, second = played.tool_calls
    assert [first.code, second.code] == ["print(2)", "print(x)"]
    assert first.observation == f"\n{form.result_tags[0]}\n2\n{form.result_tags[1]}\n"
    assert "[no output]" in second.observation
    assert [each.stop_reason for each in played.turns[:2]] == [StopReason.CALL, StopReason.CALL]
    assert not played.loss_mask_T[first.start : first.stop].any()
    assert played.loss_mask_T.sum() == sum(each.stop - each.start for each in played.turns)
    assert played.sampled_text == "\n".join([*turns[:2], "<answer>2</answer>" if stop else turns[2]])
    assert played.finish_reason is FinishReason.STOP


def test_a_tag_that_is_never_opened_closes_nothing() -> None:
    assert RETOOL.parse_calls(turn("no code</code>"))[0].error == "NoCode"  # type: ignore[union-attr]
