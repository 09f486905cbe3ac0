"""Laws of episodes of chat models, for any texts, outputs and cuts."""

from functools import cache

from hypothesis import example, given, settings
from hypothesis import strategies as st

from chat_models import FAMILIES, ChatModel, message
from scripted_engine import ScriptedInterpreter
from torl.base.types import FinishReason, StopReason
from torl_lab.audit.tokens import token_mismatch

codes = st.sampled_from(["1", "2", "é\n", '"', "</tool_call>", "<|im_end|>", "[ARGS]", "x" * 60])
DAMAGE = {"whole": lambda text: text, "malformed": lambda text: text.replace('"}', '"'), "cut": lambda text: text[:-20]}


@cache
def model(family: str) -> ChatModel:
    return ChatModel.of(family)


@st.composite
def messages(draw: st.DrawFn, family: str) -> str:
    """Some calls or none, all of them well written, or none."""
    written = draw(st.lists(codes, max_size=3))
    if not written:
        return f"So \\boxed{{1}}.{model(family).form.end_tokens[-1]}"
    text = message(
        family, *written[: 1 if family in ("llama3", "harmony") else 3], said=draw(st.sampled_from(["", "é "]))
    )
    return DAMAGE[draw(st.sampled_from(sorted(DAMAGE)))](text) + model(family).end


conversations = st.sampled_from(FAMILIES).flatmap(
    lambda family: st.tuples(st.just(family), st.lists(messages(family), max_size=4))
)


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from(FAMILIES).flatmap(
        lambda family: st.tuples(st.just(family), st.lists(messages(family), max_size=4))
    ),
    st.integers(0, 5),
    st.integers(1, 9),
    st.sampled_from([4000, 4000, 40, 150]),
    st.sampled_from(["1\n", "", "<|im_end|><tool_call>\n", "\u2028é"]),
    st.booleans(),
)
@example(("hermes", [message("hermes", "1", "2", "3")]), 2, 1, 4000, "1\n", True)
def test_episode_is_samples_and_answers(
    written: tuple[str, list[str]], calls: int, piece: int, limit: int, printed: str, early: bool
) -> None:
    family, turns = written
    playing = model(family)
    turns = [*turns, *[f"So \\boxed{{1}}.{playing.form.end_tokens[-1]}"]]
    interpreter = ScriptedInterpreter(lambda _: printed)
    played = playing.play(
        turns, calls=calls, piece=piece, limit=limit, interpreter=interpreter, speculative_execution=early
    )
    ids, control = played.token_ids_T.tolist(), {*playing.tokenizer.get_added_vocab().values()}
    assert len(ids) <= limit

    sampled = [False] * len(ids)
    for number, turn in enumerate(played.turns):
        scripted = playing.ids(turns[number])
        assert ids[turn.start : turn.stop] == scripted[: turn.stop - turn.start]
        sampled[turn.start : turn.stop] = [True] * (turn.stop - turn.start)
        if turn.stop_reason is not StopReason.LENGTH:
            assert ids[turn.stop - 1] in playing.end_token_ids
    assert played.loss_mask_T.tolist() == sampled

    for turn in played.turns:
        answered = playing.form.parse_calls(turn) if turn.stop_reason is StopReason.CALL else []
        made = played.calls_in(turn)
        if not made:
            assert not answered or turn.stop == limit
            continue
        assert len(made) == len(answered)
        empty = playing.form.render_observation(turn, [call.outcome for call in made])
        spelled = [part for part in empty if not isinstance(part, str)] if not isinstance(empty, str) else []
        expected = [token for part in spelled for token in playing.ids(part.text) if token in control]
        observed = [token for token in ids[made[0].start : made[0].stop] if token in control]
        assert observed == expected[: len(observed)]
        assert len(observed) == len(expected) or made[0].stop == limit
    assert sum(call.ran for call in played.tool_calls) <= calls
    assert (played.finish_reason is FinishReason.LENGTH) == (len(ids) == limit and not ends(played, playing))
    assert token_mismatch(played, playing.rules(calls=calls, limit=limit)) is None


def ends(played, playing: ChatModel) -> bool:
    """Whether its last turn ended by itself, and asked for nothing."""
    last = played.turns[-1]
    return last.stop == len(played) and last.stop_reason is StopReason.STOP
