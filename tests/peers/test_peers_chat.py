"""Chat formats compared with libraries that render conversations: torl inserts the same tokens between the messages.

Oracles: `renderers` extends a sampled conversation by tool messages without rendering it again, and reads calls
from tokens; TRL ships the families' own templates, by which whole conversations are rendered; mistral-common encodes
Mistral's. Each family has its own vocabulary (`vocabularies.py`). Where a result spells a control token both make that
token of it, and torl keeps the text: there the texts are compared.
"""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mistral_common.protocol.instruct.messages import AssistantMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.tool_calls import FunctionCall, ToolCall
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from renderers.configs import Qwen3RendererConfig
from renderers.deepseek_v3 import DeepSeekV3Renderer
from renderers.kimi_k2 import KimiK2Renderer
from renderers.llama_3 import Llama3Renderer
from renderers.qwen3 import Qwen3Renderer

from builders import printed
from chat_models import ChatModel, message
from scripted_engine import ScriptedInterpreter
from torl._core import Scanner
from torl.base.types import StopReason, Trajectory, Turn
from torl.components.text.vocabulary import read_turn
from vocabularies import TEMPLATES, mistral, mistrals_pieces, model, own_pieces, package, pieces

RENDERERS = {
    "hermes": Qwen3Renderer,
    "llama3": Llama3Renderer,
    "deepseek": DeepSeekV3Renderer,
    "kimi": KimiK2Renderer,
}
SINGLE = ("llama3", "harmony")
QUESTION = [{"role": "user", "content": "What is 1?"}]
CONVERSATIONS = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))

markup = ["<tool_call>", "</tool_call>", "<|im_end|>", "<|eot_id|>", "<|end|>", "[/TOOL_RESULTS]", "</s>", "<think>"]
spellings = st.sampled_from(["\n", "\n\n", " ", "  x", "é", "\u200b", '"', "\\", "1", "123", "```", *markup])
characters = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
texts = st.lists(spellings | characters, max_size=8).map("".join)
# Output of a tool; torl strips newlines from its end, and reports if nothing is left.
results = texts.map(lambda text: text.rstrip("\n") or "[no output]").filter(lambda text: len(text) <= 1024)
plain = st.text("abc 123+-*/()\n=_é", max_size=20)


def observed(played: Trajectory) -> list[int]:
    """The tokens inserted after the first turn."""
    call = played.tool_calls[0]
    return played.token_ids_T[call.start : call.stop].tolist()


def play(playing: ChatModel, said: str, printed: list[str]) -> Trajectory:
    """A message of this many calls, which print this, and an end."""
    answers = iter(printed)  # calls of a tool that keeps nothing begin in their order
    return playing.play([said, "."], interpreter=ScriptedInterpreter(lambda _: next(answers)))


@pytest.mark.parametrize("family", ["harmony", "hermes", "llama3", "mistral"])
@CONVERSATIONS
@given(text=texts)
def test_text_is_encoded_as_by_the_familys_own_program(family: str, text: str) -> None:
    playing = model(family)
    assert pieces(playing.tokenizer, playing.encoder.encode(text)) == own_pieces(family, text)


@pytest.mark.parametrize("family", sorted(RENDERERS))
@CONVERSATIONS
@given(data=st.data())
def test_results_equal_the_renderers_text_after_the_message(family: str, data: st.DataObject) -> None:
    playing = model(family)
    codes = data.draw(st.lists(plain, min_size=1, max_size=1 if family in SINGLE else 4))
    printed = data.draw(st.lists(results, min_size=len(codes), max_size=len(codes)))
    if family == "kimi":  # whose renderer encodes a result apart from the line before it; its template does not
        printed = [text.lstrip() or "1" for text in printed]
    said = message(family, *codes, said=data.draw(plain))
    played = play(playing, said, printed)
    renderer = RENDERERS[family](playing.tokenizer)
    prompt = renderer.render_ids(QUESTION, add_generation_prompt=True)
    sampled = playing.ids(said)
    answers = [
        {"role": "tool", "content": text, "tool_call_id": f"functions.python:{number}"}
        for number, text in enumerate(printed)
    ]
    extended = renderer.bridge_to_next_turn(prompt, sampled, answers).token_ids
    assert extended[: len(prompt) + len(sampled)] == prompt + sampled
    assert_same(playing, extended[len(prompt) + len(sampled) :], observed(played), printed)
    read = renderer.parse_response(sampled).tool_calls
    assert [(call.name, call.arguments) for call in read] == [
        (call.request.tool, call.request.arguments) for call in played.tool_calls if call.request is not None
    ]


@pytest.mark.parametrize("family", sorted(RENDERERS))
@CONVERSATIONS
@given(data=st.data())
def test_user_message_equals_the_renderers_text_after_a_message_or_results(family: str, data: st.DataObject) -> None:
    playing = model(family)
    said = data.draw(st.lists(texts, min_size=1, max_size=3))
    if family == "llama3":  # whose renderer keeps blanks around a message; its template does not
        said = [text.strip() for text in said]
    if family == "deepseek":  # whose renderer encodes a message apart from the results before it
        said = [text or "1" for text in said]
    codes = data.draw(st.lists(plain, max_size=1 if family in SINGLE else 3))
    sampled = message(family, *codes) if codes else f"Let us see.{playing.end}"
    turn = turn_of(playing, sampled)
    outcomes = [printed(str(number)) for number, _ in enumerate(codes)]
    tokens, _ = playing.encoder.encode_observation(playing.form.render_reply(turn, outcomes, said))
    configuration = {"config": Qwen3RendererConfig(thinking_retention="all")} if family == "hermes" else {}
    renderer = RENDERERS[family](playing.tokenizer, **configuration)
    prompt = renderer.render_ids(QUESTION, add_generation_prompt=True)
    messages = [
        *({"role": "tool", "content": each.text, "tool_call_id": f"functions.python:{number}"}
          for number, each in enumerate(outcomes)),
        *({"role": "user", "content": text} for text in said),
    ]  # fmt: skip
    extended = renderer.bridge_to_next_turn(prompt, playing.ids(sampled), messages).token_ids
    assert_same(playing, extended[len(prompt) + len(playing.ids(sampled)) :], tokens, said)


@pytest.mark.parametrize("template", sorted(TEMPLATES))
@CONVERSATIONS
@given(said=texts)
def test_user_message_equals_the_familys_template(template: str, said: str) -> None:
    playing = model(TEMPLATES[template], **({"generation_prefix": "<think>\n"} if template == "deepseekv3" else {}))
    tokenizer = copy.copy(playing.tokenizer)
    tokenizer.chat_template = (package("trl") / "chat_templates" / f"{template}.jinja").read_text()
    requests = [*QUESTION, {"role": "assistant", "content": "Let us see."}]
    whole = tokenizer.apply_chat_template(
        [*requests, {"role": "user", "content": said}], tokenize=False, add_generation_prompt=True
    )
    end = "<|end|>" if template == "gptoss" else playing.end  # <|return|> is in the last message alone
    rest = whole.rpartition("Let us see.")[2].removeprefix(end)
    turn = turn_of(playing, f"Let us see.{playing.form.end_tokens[-1]}")
    tokens, _ = playing.encoder.encode_observation(playing.form.render_reply(turn, user_messages=[said]))
    assert_same(playing, playing.ids(rest), tokens, [said])


def turn_of(playing: ChatModel, sampled: str) -> Turn:
    """A turn of this text, as an episode reads it."""
    ids = playing.ids(sampled)
    scan = Scanner(playing.vocabulary, playing.form.stop_condition(), False).feed(ids)
    return read_turn(playing.vocabulary, ids, scan, 0, StopReason.STOP, 0)


@pytest.mark.parametrize("template", sorted(TEMPLATES))
@CONVERSATIONS
@given(data=st.data())
def test_results_equal_the_familys_template(template: str, data: st.DataObject) -> None:
    """Text between a message with calls and the header of the next; the template is asked for it, torl for tokens."""
    family = TEMPLATES[template]
    playing = model(family)
    codes = data.draw(st.lists(plain, min_size=1, max_size=1 if family in SINGLE else 4))
    printed = data.draw(st.lists(results, min_size=len(codes), max_size=len(codes)))
    # Harmony's template writes a result as a JSON string, and torl as it is.
    written = [json.dumps(text, ensure_ascii=False) for text in printed] if family == "harmony" else printed
    played = play(playing, message(family, *codes), written)
    tokenizer = copy.copy(playing.tokenizer)
    tokenizer.chat_template = (package("trl") / "chat_templates" / f"{template}.jinja").read_text()
    calls = [{"type": "function", "function": {"name": "python", "arguments": {"code": code}}} for code in codes]
    if family == "deepseek":  # whose template takes arguments as they were written
        for call in calls:
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    requests = [*QUESTION, {"role": "assistant", "content": "", "tool_calls": calls}]
    answered = [*requests, *({"role": "tool", "content": text} for text in printed)]
    before = tokenizer.apply_chat_template(requests, tokenize=False)
    whole = tokenizer.apply_chat_template(answered, tokenize=False, add_generation_prompt=True)
    messages = before.count(playing.end)
    rest = playing.end.join(whole.split(playing.end)[messages:])
    assert_same(playing, playing.ids(rest), observed(played), printed)


def assert_same(playing: ChatModel, expected: list[int], tokens: list[int], printed: list[str]) -> None:
    """Token for token, but where a result spells a token of the vocabulary: there it stays text."""
    added = playing.tokenizer.get_added_vocab()
    if spelled := sum(text.count(token) for token in added for text in printed):
        assert playing.tokenizer.decode(tokens) == playing.tokenizer.decode(expected)
        made_of_them = [sum(token in added.values() for token in ids) for ids in (tokens, expected)]
        assert made_of_them[0] == made_of_them[1] - spelled
    else:
        assert tokens == expected


@CONVERSATIONS
@given(data=st.data())
def test_mistral_calls_and_results_equal_its_encoder(data: st.DataObject) -> None:
    playing, own = model("mistral"), mistral()
    codes = data.draw(st.lists(plain, min_size=1, max_size=4))
    printed = data.draw(st.lists(results, min_size=len(codes), max_size=len(codes)))
    functions = [
        FunctionCall(name="python", arguments=json.dumps({"code": code}, ensure_ascii=False)) for code in codes
    ]
    calls = [ToolCall(id=f"call{number:05}", function=function) for number, function in enumerate(functions)]
    said = own.encode_assistant_message(AssistantMessage(content="hm", tool_calls=calls), False)
    assert own.tokenizer.decode(said, SpecialTokenPolicy.KEEP) == message("mistral", *codes, said="hm")
    played = play(playing, message("mistral", *codes), printed)
    answers = [ToolMessage(content=text, tool_call_id=call.id) for text, call in zip(printed, calls, strict=True)]
    encoded = [token for answer in answers for token in own.encode_tool_message(answer, False)[0]]
    assert pieces(playing.tokenizer, observed(played)) == mistrals_pieces(encoded)


@CONVERSATIONS
@given(said=texts)
def test_user_message_to_mistral_equals_its_own_encoder(said: str) -> None:
    playing, own = model("mistral"), mistral()
    tokens, _ = playing.encoder.encode_observation(
        playing.form.render_reply(turn_of(playing, "hm</s>"), user_messages=[said])
    )
    encoded, *_ = own.encode_user_message(UserMessage(content=said), None, is_last=True, is_first=False)
    assert pieces(playing.tokenizer, tokens) == mistrals_pieces(encoded)
