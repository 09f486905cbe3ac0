"""Chat formats: the calls in a message, the answer to it token for token, and the loss mask."""

import json
from dataclasses import replace

import numpy as np
import pytest

from builders import asked, printed, scored, scored_group, turn
from chat_models import FAMILIES, ChatModel, message
from scripted_engine import ScriptedInterpreter
from torl.base.errors import DataError
from torl.base.types import FinishReason, MalformedCall, Markup, StopReason, ToolRequest
from torl.components.formats.chat import KimiFormat
from torl.components.formats.chat.calls import parse_named_call
from torl.components.text.tokenizer import control_token_ids
from torl.rollout.calls import CallCounters
from torl.run.records.dynamics import training_dynamics
from torl_lab.audit.tokens import token_mismatch

SEVERAL = [family for family in FAMILIES if family not in ("llama3", "harmony")]
ANSWERS = {
    "hermes": "\n<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    "llama3": "<|start_header_id|>ipython<|end_header_id|>\n\n"
    '"1"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n',
    "mistral": "[TOOL_RESULTS]1[/TOOL_RESULTS]",
    "deepseek": "<\uff5ctool\u2581outputs\u2581begin\uff5c><\uff5ctool\u2581output\u2581begin\uff5c>1"
    "<\uff5ctool\u2581output\u2581end\uff5c><\uff5ctool\u2581outputs\u2581end\uff5c>",
    "kimi": "<|im_system|>tool<|im_middle|>## Return of functions.python:0\n1<|im_end|>"
    "<|im_assistant|>assistant<|im_middle|>",
    "harmony": "<|start|>functions.python to=assistant<|channel|>commentary<|message|>1<|end|><|start|>assistant",
}
LAST = {"harmony": "<|channel|>final<|message|>So \\boxed{1}.<|return|>"}


def last(model: ChatModel, family: str) -> str:
    return LAST.get(family, f"So \\boxed{{1}}.{model.end}")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("piece", [1, 1000])
def test_call_is_answered_in_family_format_and_only_samples_are_trained(family: str, piece: int) -> None:
    model = ChatModel.of(family)
    turns = [message(family, "1"), last(model, family)]
    played = model.play(turns, piece=piece)
    sampled, answered = [model.ids(turn) for turn in turns], model.ids(ANSWERS[family])
    assert played.token_ids_T.tolist() == [*sampled[0], *answered, *sampled[1]]
    assert played.loss_mask_T.tolist() == [True] * len(sampled[0]) + [False] * len(answered) + [True] * len(sampled[1])
    (call,) = played.tool_calls
    assert call.request == ToolRequest("python", {"code": "1"})
    assert [turn.stop_reason for turn in played.turns] == [StopReason.CALL, StopReason.STOP]
    assert played.finish_reason is FinishReason.STOP
    assert token_mismatch(played, model.rules()) is None


@pytest.mark.parametrize("family", SEVERAL)
def test_several_calls_of_a_message_are_answered_together_in_their_order(family: str) -> None:
    model = ChatModel.of(family)
    played = model.play([message(family, "1", "2", "3"), last(model, family)])
    assert [call.code for call in played.tool_calls] == ["1", "2", "3"]
    assert [call.outcome.text for call in played.tool_calls] == ["1\n", "2\n", "3\n"]
    assert len({(call.start, call.stop, call.observation) for call in played.tool_calls}) == 1
    places = [played.tool_calls[0].observation.index(digit) for digit in "123" if family != "kimi"]
    assert places == sorted(places)
    assert token_mismatch(played, model.rules()) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_tool_output_never_becomes_a_control_token(family: str) -> None:
    model = ChatModel.of(family)
    spelled = "".join((*model.form.control_tokens, *model.form.visible_tokens, "<|endoftext|>"))
    turns = [message(family, "print('...')"), last(model, family)]
    played = model.play(turns, interpreter=ScriptedInterpreter(lambda _: spelled))
    (call,) = played.tool_calls
    observed = played.token_ids_T[call.start : call.stop].tolist()
    control = {*model.tokenizer.added_tokens_decoder}
    assert [token for token in observed if token in control] == [
        token for token in model.ids(ANSWERS[family]) if token in control
    ]
    if family != "llama3":  # which quotes it
        assert spelled in call.observation
    assert token_mismatch(played, model.rules()) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_a_message_without_calls_ends_the_response(family: str) -> None:
    model = ChatModel.of(family)
    played = model.play([last(model, family)])
    assert (played.finish_reason, played.tool_calls, len(played.turns)) == (FinishReason.STOP, (), 1)
    assert played.loss_mask_T.all()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_malformed_call_runs_nothing_and_is_answered_with_its_error(family: str) -> None:
    model = ChatModel.of(family)
    interpreter = ScriptedInterpreter()
    broken = message(family, "1").replace('"code": "1"}', '"code": 1')
    played = model.play([broken, last(model, family)], interpreter=interpreter)
    (call,) = played.tool_calls
    assert (call.ran, call.outcome.ok, call.outcome.error) == (False, False, "InvalidJSON")
    assert "InvalidJSON: the tool call is not JSON" in call.observation
    assert interpreter.codes == []
    assert token_mismatch(played, model.rules()) is None


def test_a_call_that_is_not_closed_runs_nothing() -> None:
    model = ChatModel.of("hermes")
    cut = message("hermes", "1", "2").removesuffix("\n</tool_call><|im_end|>") + "<|im_end|>"
    played = model.play([cut, last(model, "hermes")])
    assert [(call.ran, call.outcome.error) for call in played.tool_calls] == [(True, None), (False, "CutCall")]
    assert played.tool_calls[0].observation.count("<tool_response>") == 2
    assert token_mismatch(played, model.rules()) is None


def test_a_call_that_the_limit_cuts_off_is_never_made() -> None:
    model = ChatModel.of("hermes")
    interpreter = ScriptedInterpreter()
    whole = model.ids(message("hermes", "1"))
    played = model.play([message("hermes", "1")], limit=len(whole) - 1, interpreter=interpreter)
    assert (played.finish_reason, played.tool_calls) == (FinishReason.LENGTH, ())
    assert token_mismatch(played, model.rules(limit=len(whole) - 1)) is None


def test_calls_beyond_the_last_are_answered_with_an_error() -> None:
    model = ChatModel.of("hermes")
    interpreter = ScriptedInterpreter()
    played = model.play([message("hermes", "1", "2", "3"), message("hermes", "4")], calls=2, interpreter=interpreter)
    assert interpreter.codes == ["1", "2"]
    assert [(call.ran, call.outcome.error) for call in played.tool_calls] == [
        (True, None),
        (True, None),
        (False, "TooManyCalls"),
    ]
    assert played.finish_reason is FinishReason.STOP
    assert token_mismatch(played, model.rules(calls=2)) is None


def test_other_end_of_sequence_token_always_ends_the_response() -> None:
    model = ChatModel.of("hermes")
    played = model.play([message("hermes", "1").replace("<|im_end|>", "<|endoftext|>")])
    assert (played.finish_reason, played.tool_calls) == (FinishReason.STOP, ())
    assert token_mismatch(played, model.rules()) is None


@pytest.mark.parametrize("family", ["hermes", "deepseek", "kimi"])
async def test_a_call_begins_when_its_tag_closes(family: str) -> None:
    model = ChatModel.of(family)
    interpreter = ScriptedInterpreter()
    playing = model.player([message(family, "1", "2"), last(model, family)], interpreter=interpreter)
    played = await playing.play(asked(token_ids=model.ids("Q\n")), batch_id=0, sample=0)
    assert [call.code for call in played.tool_calls] == interpreter.codes == ["1", "2"]
    assert playing.counters.calls == CallCounters(speculated=2, wasted=0)


async def test_no_more_calls_begin_early_than_are_left() -> None:
    model = ChatModel.of("hermes")
    playing = model.player([message("hermes", "1", "2", "3"), last(model, "hermes")], calls=2)
    await playing.play(asked(token_ids=model.ids("Q\n")), batch_id=0, sample=0)
    assert playing.counters.calls == CallCounters(speculated=2, wasted=0)


def test_thinking_stays_as_it_was_sampled() -> None:
    """Templates strip it from earlier messages; sampled text is never rendered again."""
    model = ChatModel.of("hermes")
    thought = "<think>\n\n  hm \n</think>\n\n"
    turns = [thought + message("hermes", "1"), thought + message("hermes", "2", said=""), last(model, "hermes")]
    played = model.play(turns)
    sampled = [played.token_ids_T[turn.start : turn.stop].tolist() for turn in played.turns]
    assert sampled == [model.ids(turn) for turn in turns]


def test_a_call_in_the_thinking_of_a_message_is_a_thought() -> None:
    model = ChatModel.of("hermes")
    call = message("hermes", "1", said="").removesuffix("<|im_end|>")
    thought = f"<think>{call} or <tool_call> is how I call.\n</think>\n\n"
    played = model.play([thought + message("hermes", "print('</think>')"), thought + last(model, "hermes")])
    assert [call.code for call in played.tool_calls] == ["print('</think>')"]
    assert played.finish_reason is FinishReason.STOP
    assert token_mismatch(played, model.rules()) is None


@pytest.mark.parametrize(
    ("prefix", "before", "after"),
    [
        ("", "<think>", ""),
        ("<think>\n", "", ""),
        ("", "<think>a</think>b <think>", ""),
        ("", "a</think>b<think>", "</think>c"),
    ],
)
def test_a_call_in_thinking_that_is_not_the_first_or_not_closed_is_a_thought(
    prefix: str, before: str, after: str
) -> None:
    model = ChatModel.of("hermes", generation_prefix=prefix)
    call = message("hermes", "1", said="").removesuffix("<|im_end|>")
    played = model.play([f"{before}{call}{after}<|im_end|>"])
    assert played.tool_calls == ()
    assert played.finish_reason is FinishReason.STOP
    assert token_mismatch(played, model.rules()) is None
    call_after = model.play([f"{before}{call}</think>{message('hermes', '2')}", last(model, "hermes")])
    assert [call.code for call in call_after.tool_calls] == ["2"]


FENCE = "```python\nprint(1)\n```\n"


@pytest.mark.parametrize("family", ["llama3", "harmony", "mistral"])
@pytest.mark.parametrize("stop", [(), ("STOP",)])
def test_fence_in_a_message_without_tags_is_text(family: str, stop: tuple[str, ...]) -> None:
    """Also while the turn is sampled: with stop strings, the engine announces the fence."""
    model = ChatModel.of(family)
    interpreter = ScriptedInterpreter()
    said = f"{FENCE}{last(model, family)}"
    if family == "harmony":
        said = f"<|channel|>analysis<|message|>\n{FENCE}<|end|><|start|>assistant{last(model, family)}"
    played = model.play([said], interpreter=interpreter, stop=stop)
    assert [block.code for block in played.turns[0].blocks] == ["print(1)\n"]
    assert (played.tool_calls, interpreter.codes) == ((), [])
    metrics = training_dynamics([scored_group(scored(played))])
    assert metrics["tool/executed_ratio"] == 0.0
    assert "tool/unexecuted_calls" not in metrics
    assert token_mismatch(played, model.rules(stop=stop)) is None


@pytest.mark.parametrize("family", ["llama3", "mistral"])
def test_fence_in_the_thinking_is_no_part_of_the_content(family: str) -> None:
    model = ChatModel.of(family)
    assert model.form.content(turn(f"<think>\n{FENCE}</think> answer")) == "answer"


def test_llama_runs_code_after_its_tag_and_ignores_other_braces() -> None:
    model = ChatModel.of("llama3")
    played = model.play(["<|python_tag|>print(1)<|eom_id|>", "{1, 2} \\boxed{1}<|eot_id|>"])
    assert [call.code for call in played.tool_calls] == ["print(1)"]
    assert played.finish_reason is FinishReason.STOP


def test_harmony_runs_code_for_python_and_a_call_without_recipient_is_malformed() -> None:
    model = ChatModel.of("harmony")
    code = "<|channel|>analysis to=python code<|message|>print(1)<|call|>"
    played = model.play([code, "<|channel|>commentary<|message|>{}<|call|>", LAST["harmony"]])
    assert [(call.code, call.outcome.error) for call in played.tool_calls] == [("print(1)", None), ("", "InvalidCall")]
    assert played.tool_calls[0].observation.startswith("<|start|>python to=assistant")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "InvalidJSON"),
        ("[]", "InvalidJSON"),
        ('{"name": "python", "arguments": {"x": NaN}}', "InvalidJSON"),
        ('{"name": "python", "arguments": {"x": 1e999}}', "InvalidJSON"),
        ('{"name": "python", "arguments": {"x": "\\ud800"}}', "InvalidJSON"),
        ('{"name": "python", "arguments": {"x": ' + "9" * 5000 + "}}", "InvalidJSON"),
        ("[" * 100_000, "InvalidJSON"),
        ('{"name": 1, "arguments": {}}', "InvalidCall"),
        ('{"arguments": {}}', "InvalidCall"),
        ('{"name": "python", "arguments": 1}', "InvalidCall"),
        ('{"name": "python", "arguments": "[]"}', "InvalidJSON"),
    ],
)
def test_invalid_call_is_malformed(text: str, error: str) -> None:
    call = parse_named_call(text)
    assert isinstance(call, MalformedCall)
    assert call.error == error


def test_arguments_may_be_left_out_or_be_text_that_holds_them() -> None:
    assert parse_named_call(' {"name": "now"}\n') == ToolRequest("now", {})
    assert parse_named_call('{"name": "f", "arguments": "{\\"x\\": 1}"}') == ToolRequest("f", {"x": 1})


def test_a_vocabulary_without_the_tokens_of_a_format_is_refused() -> None:
    model = ChatModel.of("hermes")
    with pytest.raises(DataError, match=r"no token <\|im_system\|>, .*, which .*\(rollout\.format\)"):
        control_token_ids(model.tokenizer, KimiFormat.control_tokens)


# --- what the audit finds -----------------------------------------------------------------------------------------


def test_audit_finds_errors_in_an_answer() -> None:
    model = ChatModel.of("hermes")
    played = model.play([message("hermes", "1", "2"), last(model, "hermes")])
    rules = model.rules()
    assert token_mismatch(played, rules) is None
    call = played.tool_calls[0]

    header = played.loss_mask_T.copy()
    header[call.stop - 1] = True
    assert "the loss mask is True at token" in str(token_mismatch(replace(played, loss_mask_T=header), rules))

    end = played.loss_mask_T.copy()
    end[played.turns[0].stop - 1] = False
    assert "the loss mask is False at token" in str(token_mismatch(replace(played, loss_mask_T=end), rules))

    control = played.token_ids_T.copy()
    control[call.start + 1] = control_token_ids(model.tokenizer, ["<|im_end|>"])[0]
    assert "has the wrong position or tokens" in str(token_mismatch(replace(played, token_ids_T=control), rules))

    twice = np.insert(played.token_ids_T, call.stop, played.token_ids_T[call.start : call.stop])
    length = call.stop - call.start
    doubled = replace(
        played,
        token_ids_T=twice,
        loss_mask_T=np.insert(played.loss_mask_T, call.stop, [False] * length),
        rollout_logprobs_T=np.insert(played.rollout_logprobs_T, call.stop, [0.0] * length),
        policy_versions_T=np.insert(played.policy_versions_T, call.stop, [-1] * length),
        tool_calls=tuple(replace(each, stop=each.stop + length) for each in played.tool_calls),
    )
    assert "has the wrong position or tokens" in str(token_mismatch(doubled, rules))

    one, other = played.tool_calls
    swapped = (replace(one, outcome=other.outcome), replace(other, outcome=one.outcome))
    assert "does not match its outcome" in str(token_mismatch(replace(played, tool_calls=swapped), rules))

    assert "the turn requests 2 calls, but 1 have results" in str(
        token_mismatch(replace(played, tool_calls=played.tool_calls[:1]), rules)
    )


SAID = {
    "hermes": "\n<|im_start|>user\nAnd 2?<|im_end|>\n<|im_start|>assistant\n",
    "llama3": "<|start_header_id|>user<|end_header_id|>\n\nAnd 2?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "[INST]And 2?[/INST]",
    "deepseek": "<\uff5cUser\uff5c>And 2?<\uff5cAssistant\uff5c>",
    "kimi": "<|im_user|>user<|im_middle|>And 2?<|im_end|><|im_assistant|>assistant<|im_middle|>",
    "harmony": "<|start|>user<|message|>And 2?<|end|><|start|>assistant",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_user_message_alone_or_after_results_is_in_family_format(family: str) -> None:
    model = ChatModel.of(family)
    silent = turn(last(model, family))
    alone, _ = model.encoder.encode_observation(model.form.render_reply(silent, user_messages=["And 2?"]))
    assert alone == model.ids(SAID[family])
    asking = turn(message(family, "1"))
    header = model.form.header if family != "deepseek" else ""
    results, _ = model.encoder.encode_observation(model.form.render_reply(asking, [printed("1")], ["And 2?"]))
    assert results == model.ids(ANSWERS[family].removesuffix(header) + SAID[family])


@pytest.mark.parametrize("family", FAMILIES)
def test_user_message_never_becomes_a_control_token(family: str) -> None:
    model = ChatModel.of(family)
    spelled = "".join((*model.form.control_tokens, *model.form.visible_tokens, "<|endoftext|>"))
    tokens, text = model.encoder.encode_observation(
        model.form.render_reply(turn(last(model, family)), user_messages=[spelled])
    )
    control = {*model.tokenizer.added_tokens_decoder}
    assert [token for token in tokens if token in control] == [
        token for token in model.ids(SAID[family]) if token in control
    ]
    assert spelled in text


@pytest.mark.parametrize("family", FAMILIES)
def test_message_content_excludes_thinking_and_calls(family: str) -> None:
    model = ChatModel.of(family)
    shown = {"llama3": "", "harmony": ""}.get(family, "Let us see.")  # a thought in Harmony, and a call alone in Llama
    called = turn(model.vocabulary.decode(model.ids(message(family, "1"))))
    assert model.form.content(called) == shown
    text = {"harmony": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>7"}
    assert model.form.content(turn(text.get(family, "Hm.</think>\n\n7\n"))) == "7"


def test_a_template_that_opens_the_thinking_opens_it_in_each_message() -> None:
    form = ChatModel.of("hermes", generation_prefix="<think>\n").form
    assert form.render_reply(turn("7"), user_messages=["And 2?"])[-1] == Markup("\n<|im_start|>assistant\n<think>\n")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["look_up", "files.read", "two words", "a:b", "<b>", " x", "a\nb", "größe"])
def test_format_supports_tools_with_names_that_round_trip(family: str, name: str) -> None:
    model = ChatModel.of(family)
    written = message(family, "1", tool=json.dumps(name)[1:-1] if family in ("hermes", "llama3") else name)
    played = model.play([written, "."])
    read = [call.request.tool for call in played.tool_calls if call.request is not None]
    assert model.form.tools is not None
    assert (name in model.form.tools) is (read == [name])
    assert name + model.form.control_tokens[0] not in model.form.tools
    assert "" not in model.form.tools
