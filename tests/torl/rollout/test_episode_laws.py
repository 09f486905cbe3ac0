"""Laws of splicing: for any emitted tokens, in any pieces, the record is what was emitted and observed."""

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders import asked, player
from reference import scan_bytes
from scripted_engine import ENCODER, STOP, VOCABULARY, ScriptedEngine, ScriptedInterpreter
from torl.base.types import FinishReason, StopReason, Trajectory
from torl.components.formats import Format
from torl.recipes.torl import ToRLFormat
from torl.recipes.zerotir import ZeroTIRFormat, ZeroTIROptions
from torl.run.config import RolloutConfig
from torl_lab.audit.replay import ReplayContext
from torl_lab.audit.tokens import token_mismatch

MARKER = b"```output"
FRAGMENTS = [
    "```python\n",
    "print(1)",
    "\n",
    "```",
    "```\n",
    "```output",
    "```output\n",
    "`",
    "``",
    "output",
    "x é 🙂 ",
    "1",
]

fragments = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
# Tokens as the tokenizer cuts them, or any tokens at all: bytes of half characters, ends in the middle.
turns = st.one_of(
    fragments.map(ENCODER.encode),
    st.lists(
        st.one_of(st.integers(0, len(VOCABULARY) + 3), st.sampled_from(ENCODER.encode("```output\n"))), max_size=30
    ),
)


def first_end(text: bytes, form: Format, at_line_start: bool) -> int | None:
    """The first end of a turn in these bytes, by the naive reference."""
    scan = scan_bytes(text, MARKER if form.name == "torl" else None, at_line_start, form.name == "zerotir")
    if form.name == "torl":
        return None if scan.marker is None else scan.marker[1]
    return scan.blocks[0].end if scan.blocks else None


def play(
    engine: ScriptedEngine,
    interpreter: ScriptedInterpreter,
    form: Format,
    *,
    calls: int,
    limit: int,
    early: bool = False,
) -> Trajectory:
    playing = player(
        engine,
        interpreter,
        form=form,
        limit=limit,
        max_tool_calls=calls,
        temperature=0.7,
        seed=5,
        speculative_execution=early,
    )
    prompt = asked(question="q", answer="a", token_ids=ENCODER.encode("What is 1?\n"))
    return asyncio.run(playing.play(prompt, batch_id=2, sample=3))


OPTIONS = {"torl": {}, "zerotir": {"error_style": "last_line", "max_observation_tokens": 24}}
FORMS: list[Format] = [ToRLFormat(), ZeroTIRFormat(ZeroTIROptions.model_validate(OPTIONS["zerotir"]))]


@given(
    number=st.integers(0, 1),
    script=st.lists(turns, min_size=5, max_size=5),
    pieces=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    output=st.text(max_size=20),
    calls=st.integers(0, 4),
    limit=st.integers(1, 80),
    early=st.booleans(),
)
def test_record_is_emitted_and_observed_tokens(
    number: int, script: list[list[int]], pieces: list[int], output: str, calls: int, limit: int, early: bool
) -> None:
    form = FORMS[number]

    def turn_of(request_id: str) -> int:
        return int(request_id.rsplit("/", 1)[1])

    engine = ScriptedEngine(
        lambda request: script[turn_of(request)],
        lambda _: pieces,
        lambda request: 10 + turn_of(request),
    )
    interpreter = ScriptedInterpreter(lambda _: output)
    trajectory = play(engine, interpreter, form, calls=calls, limit=limit, early=early)
    ids = trajectory.token_ids_T.tolist()
    requests = list(engine.requests.values())
    assert engine.open == interpreter.running == 0
    assert len(trajectory) <= limit
    assert len(trajectory.tool_calls) <= calls
    assert len(requests) == len(trajectory.turns)
    assert len({request.sampling.seed for request in requests}) == len(requests)

    mask = np.zeros(len(ids), dtype=bool)
    for index, (turn, request) in enumerate(zip(trajectory.turns, requests, strict=True)):
        length = turn.stop - turn.start
        assert request.token_ids == [*trajectory.prompt.token_ids, *ids[: turn.start]]
        assert request.sampling.max_tokens == limit - turn.start
        assert request.emitted[:length] == ids[turn.start : turn.stop]
        assert trajectory.rollout_logprobs_T[turn.start : turn.stop].tolist() == request.logprobs[:length]
        assert set(trajectory.policy_versions_T[turn.start : turn.stop].tolist()) <= {10 + index}
        mask[turn.start : turn.stop] = True
        assert turn.text == VOCABULARY.decode(ids[turn.start : turn.stop])
        assert [turn.text[block.start : block.stop] for block in turn.blocks] == [block.code for block in turn.blocks]
        text = VOCABULARY.decode_bytes(ids[turn.start : turn.stop])
        begins_line = index == 0 or trajectory.tool_calls[index - 1].observation.endswith("\n")
        end = first_end(text, form, begins_line)
        asks = index < calls and end is not None
        blocks = scan_bytes(text[:end] if asks else text, None, begins_line).blocks
        assert [block.code for block in turn.blocks] == [block.code.decode(errors="replace") for block in blocks]
        assert (turn.stop_reason is StopReason.CALL) == asks
        if asks:
            # The turn ends with the token that holds the last byte of the first marker, or closing fence.
            assert len(VOCABULARY.decode_bytes(ids[turn.start : turn.stop - 1])) < end
            assert index < len(trajectory.tool_calls) or len(trajectory) == limit
        else:
            assert request.emitted == ids[turn.start : turn.stop]
            assert index == len(requests) - 1
    assert np.array_equal(trajectory.loss_mask_T, mask)
    assert not trajectory.rollout_logprobs_T[~mask].any()
    assert (trajectory.policy_versions_T[~mask] == -1).all()

    ran = [call.code for call in trajectory.tool_calls if call.ran]
    assert all(call.ran == (call.outcome.error != "NoCode") for call in trajectory.tool_calls)
    if early:
        assert not Counter(ran) - Counter(interpreter.codes)
    else:
        assert interpreter.codes == ran
    for call in trajectory.tool_calls:
        observed = ids[call.start : call.stop]
        assert observed == ENCODER.encode(call.observation)[: len(observed)]
        assert len(observed) == len(ENCODER.encode(call.observation)) or call.stop == limit
    if trajectory.finish_reason is FinishReason.STOP:
        assert ids[-1] == STOP
    else:
        assert len(ids) == limit
    spans = sorted([(t.start, t.stop) for t in trajectory.turns] + [(c.start, c.stop) for c in trajectory.tool_calls])
    assert spans[0][0] == 0
    assert spans[-1][1] == len(ids)
    assert all(left[1] == right[0] for left, right in pairwise(spans))
    assert trajectory.text == VOCABULARY.decode(ids)


@given(
    number=st.integers(0, 1),
    script=st.lists(turns, min_size=5, max_size=5),
    calls=st.integers(0, 4),
    limit=st.integers(1, 80),
    data=st.data(),
)
def test_an_audit_finds_the_turns_again(number: int, script: list[list[int]], calls: int, limit: int, data) -> None:
    """From token ids and calls alone; and it finds a token with the wrong mask, and a turn of the wrong length."""
    form = FORMS[number]
    engine = ScriptedEngine(lambda request: script[int(request.rsplit("/", 1)[1])])
    trajectory = play(engine, ScriptedInterpreter(lambda _: "1"), form, calls=calls, limit=limit)
    section = {"name": form.name, **OPTIONS[form.name]}
    rollout = RolloutConfig.model_validate({"format": section, "max_tool_calls": calls, "max_response_tokens": limit})
    rules = ReplayContext(form, VOCABULARY, ENCODER, frozenset({STOP}), frozenset({"python"}), rollout)

    def audited(changed: Trajectory) -> str | None:
        return token_mismatch(changed, rules)

    assert audited(trajectory) is None
    mask = trajectory.loss_mask_T.copy()
    place = data.draw(st.integers(0, len(mask) - 1))
    mask[place] = not mask[place]
    assert audited(replace(trajectory, loss_mask_T=mask)) == f"the loss mask is {mask[place]} at token {place}"
    last = trajectory.turns[-1]
    longer = (*trajectory.turns[:-1], replace(last, stop=last.stop + 1))
    assert "turns are" in (audited(replace(trajectory, turns=longer)) or "")
    if trajectory.tool_calls:
        fewer = replace(trajectory, tool_calls=trajectory.tool_calls[:-1])
        assert audited(fewer) is not None


@given(
    number=st.integers(0, 1),
    script=st.lists(turns, min_size=4, max_size=4),
    pieces=st.lists(st.integers(1, 7), min_size=1, max_size=5),
)
def test_pieces_do_not_matter(number: int, script: list[list[int]], pieces: list[int]) -> None:
    def record(lengths: list[int]) -> Trajectory:
        engine = ScriptedEngine(lambda request: script[int(request.rsplit("/", 1)[1])], lambda _: lengths)
        return play(engine, ScriptedInterpreter(), FORMS[number], calls=3, limit=90)

    one, other = record([1]), record(pieces)
    for name in ("token_ids_T", "loss_mask_T", "rollout_logprobs_T", "policy_versions_T"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert [(c.code, c.observation, c.start, c.stop) for c in one.tool_calls] == [
        (c.code, c.observation, c.start, c.stop) for c in other.tool_calls
    ]
    assert [(turn.start, turn.stop) for turn in one.turns] == [(turn.start, turn.stop) for turn in other.turns]
    assert (one.text, one.sampled_text, one.finish_reason) == (other.text, other.sampled_text, other.finish_reason)
