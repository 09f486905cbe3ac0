"""Laws of episodes in an environment, for any texts, answers and cuts."""

import asyncio
from functools import cache

from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders import asked
from chat_models import FAMILIES, ChatModel, message
from scripted_engine import STOP, ScriptedEngine
from scripted_environment import ScriptedEnvironment, in_environment
from torl.base.types import FinishReason, StopReason
from torl_lab.audit.tokens import token_mismatch

ENVIRONMENT = {"name": "scripted_environment:Chosen"}
texts = st.sampled_from(["No.", "", "<|im_end|>", "</tool_call>[/INST]", " \u00e9\n", "x" * 40])
answers = st.lists(st.tuples(st.lists(texts, max_size=2), st.integers(0, 5).map(lambda draw: draw == 0)), max_size=6)


@cache
def model(family: str) -> ChatModel:
    return ChatModel.of(family)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A family, and messages that call Python, the environment's tool, nothing, or are not closed by an end token."""
    family = draw(st.sampled_from(FAMILIES))
    end = model(family).form.end_tokens[-1]
    turns = []
    for kind in draw(st.lists(st.sampled_from(["python", "look", "look", "says", "says", "unclosed"]), max_size=5)):
        text = draw(texts.filter(lambda text: "<" not in text and "[" not in text))
        if kind in ("python", "look"):
            turns.append(
                message(family, *(["1"] * draw(st.integers(1, 1 if family in ("llama3", "harmony") else 3))), tool=kind)
            )
        else:
            turns.append(f"a {text}" + (end if kind == "says" else ""))
    return family, [*turns, *[f"Done.{end}"] * 8]


@settings(max_examples=200, deadline=None)
@given(
    conversations(),
    answers,
    st.integers(0, 4),
    st.sampled_from([4000, 4000, 30, 120]),
    st.sampled_from([None, 1, 3]),
    st.booleans(),
)
@example(("hermes", ["1<|im_end|>"] * 9), [(["No."], False), (["Yes.", "So."], True)], 2, 4000, None, True)
def test_episode_is_samples_answers_and_replies(
    written: tuple[str, list[str]],
    script: list[tuple[list[str], bool]],
    calls: int,
    limit: int,
    max_turns: int | None,
    early: bool,
) -> None:
    family, turns = written
    playing = model(family)
    environment = ScriptedEnvironment(lambda number: script[number] if number < len(script) else ((), False))
    player = in_environment(
        playing.player(turns, calls=calls, limit=limit, speculative_execution=early),
        playing,
        environment,
        max_turns=max_turns,
    )
    prompt = asked(token_ids=playing.ids("Q\n"))
    played = asyncio.run(player.play(prompt, batch_id=0, sample=0))
    ids = played.token_ids_T.tolist()
    assert len(ids) <= limit

    sampled = [False] * len(ids)
    engine = player.engine
    assert isinstance(engine, ScriptedEngine)
    for number, turn in enumerate(played.turns):
        scripted = [*playing.ids(turns[number]), STOP]
        assert ids[turn.start : turn.stop] == scripted[: turn.stop - turn.start]
        sampled[turn.start : turn.stop] = [True] * (turn.stop - turn.start)
        assert engine.requests[f"0/p/0/{number}"].token_ids == [*prompt.token_ids, *ids[: turn.start]]
    assert played.loss_mask_T.tolist() == sampled

    expected_texts = [
        text for number in range(len(environment.shown)) for text in (script[number][0] if number < len(script) else ())
    ]
    assert [each.text for each in played.user_messages] == expected_texts
    for turn in played.turns:
        made = played.calls_in(turn)
        replies = [each for each in played.user_messages if each.start == turn.stop]
        if not made and not replies:
            continue
        expected, text = playing.encoder.encode_observation(
            playing.form.render_reply(turn, [call.outcome for call in made], [each.text for each in replies])
        )
        (stop,) = {each.stop for each in (*made, *replies)}
        assert {each.observation for each in (*made, *replies)} == {text}
        assert ids[turn.stop : stop] == expected[: limit - turn.stop]

    last = played.turns[-1]
    told_last = last.stop < len(ids)  # an observation is at the end
    ended = played.finish_reason in (FinishReason.ENVIRONMENT, FinishReason.MAX_TURNS)
    assert ended <= told_last <= (ended or played.finish_reason is FinishReason.LENGTH)
    assert (played.finish_reason is FinishReason.STOP) <= (last.stop_reason is StopReason.STOP)
    assert (environment.unanswered[0] is None) <= bool(environment.shown)
    assert (
        token_mismatch(played, playing.rules(calls=calls, limit=limit, environment=ENVIRONMENT, max_turns=max_turns))
        is None
    )
