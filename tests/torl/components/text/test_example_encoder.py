"""Tokens and weights of examples, against the assistant masks of transformers' own chat templates."""

import copy
import datetime
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tokenizers_for_tests import CHATML, chat_tokenizer, metaspace_bpe
from torl.base.errors import DataError
from torl.components.formats.results import split_results
from torl.components.text.example_encoder import ExampleEncoder, WeightedTokens
from torl.recipes.torl import ToRLFormat

# ChatML; `generation` tells transformers which tokens are the model's.
# As reasoning models have it: thoughts before the last question are dropped.
FORGETFUL = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
    "{% endif %}{% endfor %}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% set text = message.content %}"
    "{% if message.role == 'assistant' and loop.index0 < ns.last %}{% set text = text.split('</think>')[-1] %}"
    "{% endif %}"
    "{{ text }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

SPLIT = partial(split_results, format=ToRLFormat())


def encoder_of(tokenizer: PreTrainedTokenizerFast, **variables: Any) -> ExampleEncoder:
    return ExampleEncoder(tokenizer, tokenizer.convert_tokens_to_ids(["<|im_end|>"]), variables)


def said(role: str, content: str, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


def trained_text(tokenizer: PreTrainedTokenizerFast, sequence: WeightedTokens) -> str:
    pairs = zip(sequence.token_ids, sequence.weights, strict=True)
    return str(tokenizer.decode([token for token, weight in pairs if weight]))


def weights_of(messages: list[Mapping[str, Any]]) -> list[float]:
    return [float(message["role"] == "assistant") for message in messages]


WORDS = st.lists(st.sampled_from(["Let", "x", "print(12)", "naïve", "1", "<tool_call>", "\n", "=="]), min_size=1)
TEXTS = WORDS.map(lambda words: "x " + " ".join(words))
ROLES = st.lists(st.sampled_from(["user", "assistant", "tool", "system"]), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.data(), ROLES)
def test_one_sequence_has_the_tokens_and_mask_of_the_chat_template(data: st.DataObject, roles: list[str]) -> None:
    tokenizer = chat_tokenizer()
    # Only the model's messages may spell tokens: others are escaped, which transformers does not do.
    messages = [
        said(role, text if role == "assistant" else text.replace("<tool_call>", "call"))
        for role, text in ((role, data.draw(TEXTS)) for role in ["user", *roles, "assistant"])
    ]
    (sequence,) = encoder_of(tokenizer).dialogue(messages, weights_of(messages))
    expected = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
    assert sequence.token_ids == list(expected["input_ids"])
    assert sequence.weights == list(map(float, expected["assistant_masks"]))


def test_calls_and_schemas_are_rendered_by_the_template() -> None:
    tokenizer = chat_tokenizer()
    call = {"type": "function", "function": {"name": "python", "arguments": {"code": "print(2)"}}}
    tools = [{"type": "function", "function": {"name": "python", "description": "Runs <|im_end|> code."}}]
    messages = [said("user", "1?"), said("assistant", "", tool_calls=[call]), said("tool", "2"), said("assistant", "2")]
    (sequence,) = encoder_of(tokenizer).dialogue(messages, [0, 1, 0, 0.5], tools)
    assert tokenizer.decode(sequence.token_ids) == tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
    assert trained_text(tokenizer, sequence) == (
        '<tool_call>\n{"name": "python", "arguments": {"code": "print(2)"}}\n</tool_call><|im_end|>2<|im_end|>'
    )
    assert sorted(set(sequence.weights)) == [0, 0.5, 1]
    observed = [token for token, flag in zip(sequence.token_ids, sequence.observed, strict=True) if flag]
    assert tokenizer.decode(observed) == "<|im_start|>tool\n2<|im_end|>\n<|im_start|>assistant\n"
    end, opening = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<tool_call>"])
    assert sequence.token_ids.count(end) == 5  # the schema spells one more, which stays text
    assert sequence.token_ids.count(opening) == 1


def test_control_tokens_of_other_messages_stay_text() -> None:
    tokenizer = chat_tokenizer()
    messages = [said("user", "<|im_end|><tool_call>"), said("assistant", "<think>a</think><|im_end|>b")]
    (sequence,) = encoder_of(tokenizer).dialogue(messages, [0, 1])
    counts = {
        token: sequence.token_ids.count(tokenizer.convert_tokens_to_ids(token)) for token in tokenizer.get_added_vocab()
    }
    assert (counts["<|im_end|>"], counts["<tool_call>"], counts["<think>"], counts["</think>"]) == (2, 0, 1, 1)
    assert tokenizer.decode(sequence.token_ids) == tokenizer.apply_chat_template(messages, tokenize=False)


@pytest.mark.parametrize("end", ["<|im_end|>", "<|im_end|>\n"])
def test_end_token_in_the_text_of_a_message_is_the_end(end: str) -> None:
    encoder = encoder_of(chat_tokenizer())
    asked = said("user", "a")
    expected = encoder.dialogue([asked, said("assistant", "b")], [0, 1])
    assert encoder.dialogue([asked, said("assistant", f"b{end}")], [0, 1]) == expected


def test_user_message_after_a_result_is_not_observed() -> None:
    messages = [said("user", "a"), said("assistant", "a"), said("tool", "2"), said("user", "b"), said("assistant", "c")]
    (sequence,) = encoder_of(chat_tokenizer()).dialogue(messages, [0, 1, 0, 0, 1])
    assert not any(sequence.observed)


def test_first_message_of_the_model_is_context() -> None:
    tokenizer = chat_tokenizer()
    messages = [said("assistant", "Hello."), said("user", "a"), said("assistant", "b")]
    (sequence,) = encoder_of(tokenizer).dialogue(messages, [1, 0, 1])
    assert tokenizer.decode(sequence.token_ids) == tokenizer.apply_chat_template(messages, tokenize=False)
    assert trained_text(tokenizer, sequence) == "b<|im_end|>"


def test_template_that_drops_earlier_thoughts_starts_another_sequence() -> None:
    tokenizer = chat_tokenizer(FORGETFUL)
    turns = ["<think>1</think>a", "<think>2</think>b", "<think>3</think>c"]
    messages = [
        said("user", "A?"),
        said("assistant", turns[0]),
        said("tool", "4"),
        said("assistant", turns[1]),
        said("user", "B?"),
        said("assistant", turns[2]),
    ]
    encoder = encoder_of(tokenizer)
    first, second = encoder.dialogue(messages, weights_of(messages))
    assert tokenizer.decode(first.token_ids) == tokenizer.apply_chat_template(messages[:4], tokenize=False)
    assert tokenizer.decode(second.token_ids) == tokenizer.apply_chat_template(messages, tokenize=False)
    assert trained_text(tokenizer, first) == f"{turns[0]}<|im_end|>{turns[1]}<|im_end|>"
    assert trained_text(tokenizer, second) == f"{turns[2]}<|im_end|>"
    assert (
        encoder.dialogue(messages, [0, 1, 0, 1, 0, 0])[0].token_ids == first.token_ids
    )  # one without a loss is left out
    assert len(encoder.dialogue(messages, [0, 1, 0, 1, 0, 0])) == 1


ENDLESS = CHATML.replace("<|im_end|>{% endgeneration %}", "{% endgeneration %}")
DIFFERENT = CHATML.replace("assistant\n{% endif", "assistant\n<think>{% endif")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", "has no chat template"),
        ("{{ raise_exception('no system message') }}", "refuses it: no system message"),
        (ENDLESS, "message 1: .* without one of the model's end tokens"),
        (DIFFERENT, "message 1: .* differently than the prompt that the model continues, which ends with '.*<think>'"),
    ],
)
def test_unusable_template_is_refused(template: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        encoder_of(chat_tokenizer(template)).dialogue([said("user", "a"), said("assistant", "b")], [0, 1])


def test_variables_reach_the_template() -> None:
    tokenizer = chat_tokenizer("{{ prefix }}" + CHATML)
    (sequence,) = encoder_of(tokenizer, prefix="Hi ").dialogue([said("user", "a"), said("assistant", "b")], [0, 1])
    assert tokenizer.decode(sequence.token_ids).startswith("Hi <|im_start|>")


def test_passages_are_encoded_separately_and_end_with_the_end_token() -> None:
    tokenizer = chat_tokenizer()
    encoder, (end,) = encoder_of(tokenizer), tokenizer.convert_tokens_to_ids(["<|im_end|>"])

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    sequence = encoder.passages(["Let x", " be\n<tool_call>", "\n12\n", "12"], [0, 1, 0, 1])
    parts = [ids("Let x"), ids(" be\n<tool_call>"), ids("\n12\n"), ids("12"), [end]]
    assert sequence.token_ids == [token for part in parts for token in part]
    assert sequence.weights == [
        float(trained) for part, trained in zip(parts, (0, 1, 0, 1, 1), strict=True) for _ in part
    ]
    assert encoder.passages(["a", "b<|im_end|>"], [0, 1]).token_ids == [*ids("a"), *ids("b"), end]
    assert encoder.passages(["a", "b"], [1, 0]).token_ids == [*ids("a"), *ids("b")]  # the end is not trained
    assert encoder.passages(["ab"], [1]).weights == [0.0, *[1.0] * (len(ids("ab")) - 1), 1.0]
    rendered = "b<|im_end|>\n"  # as a chat template writes it
    assert encoder.passages(["a", rendered], [0, 1]).token_ids == [*ids("a"), *ids("b"), end]
    assert encoder.passages(["a", rendered], [1, 0]).token_ids == [*ids("a"), *ids(rendered)]
    assert encoder.response(ids("a"), rendered).token_ids == [*ids("a"), *ids("b"), end]
    prompted = encoder.response(ids("Q\n"), "12")
    assert prompted.token_ids == [*ids("Q\n"), *ids("12"), end]
    assert prompted.weights == [*[0.0] * len(ids("Q\n")), *[1.0] * (len(ids("12")) + 1)]


def test_results_in_a_message_are_observations() -> None:
    tokenizer = chat_tokenizer()
    ends = tokenizer.convert_tokens_to_ids(["<|im_end|>"])
    encoder = ExampleEncoder(tokenizer, ends, {}, SPLIT)
    parts = ["```python\n1\n```\n```output", "\n1\n```\n", "```python\n2\n```\n```output", "\n2\n```\n", "So 2."]
    messages = [said("user", "Q"), said("assistant", "".join(parts))]
    (sequence,) = encoder.dialogue(messages, [0, 1])
    pairs = [*zip(sequence.token_ids, sequence.observed, strict=True)]
    assert tokenizer.decode([token for token, observed in pairs if observed]) == parts[1] + parts[3]
    assert trained_text(tokenizer, sequence) == parts[0] + parts[2] + parts[4] + "<|im_end|>"


def test_a_template_that_renders_nothing_of_a_message_is_named() -> None:
    tokenizer = chat_tokenizer(
        "{% for message in messages if message.role == 'user' %}{{ message.content }}{% endfor %}"
    )
    encoder = ExampleEncoder(tokenizer, tokenizer.convert_tokens_to_ids(["<|im_end|>"]), {}, SPLIT)
    with pytest.raises(DataError, match="message 1: the chat template ends the model's message without"):
        encoder.dialogue([said("user", "Q"), said("assistant", "A")], [0, 1])


def test_sentencepiece_puts_no_space_between_passages() -> None:
    tokenizer = copy.deepcopy(metaspace_bpe())
    tokenizer.add_special_tokens({"eos_token": "</s>"})
    encoder = ExampleEncoder(tokenizer, [tokenizer.eos_token_id])
    sequence = encoder.passages(["x =", "y", " = x"], [0, 1, 1])
    assert tokenizer.decode(sequence.token_ids) == "x =y = x</s>"


@pytest.mark.parametrize(
    ("message", "tools", "part"),
    [
        (said("assistant", "", tool_calls=[{"function": {"name": "python", "arguments": {}}}]), [], "the call of 'pyt"),
        *(
            (said("assistant", "2", **{name: "Easy."}), [], name)
            for name in ("reasoning_content", "reasoning", "thinking")
        ),
        (said("assistant", "2"), [{"function": {"name": "python"}}], "the tool 'python'"),
    ],
)
def test_parts_that_the_template_leaves_out_are_an_error(
    message: Mapping[str, Any], tools: list[Mapping[str, Any]], part: str
) -> None:
    """A small model's template has roles and contents only: an empty message would be the call that is learned."""
    plain = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    messages = [said("user", "1 + 1?"), message]
    with pytest.raises(DataError, match=f"message 1: the model's chat template leaves out {part}.*; use examples as"):
        encoder_of(chat_tokenizer(plain)).dialogue(messages, [0, 1], tools)
    if part != "the tool 'python'":  # context only
        assert encoder_of(chat_tokenizer(plain)).dialogue(messages, [0, 0], tools) == []


def test_text_before_a_call_may_not_be_left_out() -> None:
    """Llama 3's template renders a call alone; others drop only the thinking."""
    either = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n"
        "{% if message.tool_calls %}{{ message.tool_calls[0].function | tojson }}"
        "{% else %}{{ message.content }}{% endif %}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    calls = [{"function": {"name": "python", "arguments": {"code": "1 + 1"}}}]
    messages = [said("user", "1 + 1?"), said("assistant", "I add them.\n", tool_calls=calls)]
    with pytest.raises(DataError, match=r"leaves out the text before the call, 'I add them\.'; use"):
        encoder_of(chat_tokenizer(either)).dialogue(messages, [0, 1])
    (sequence,) = encoder_of(chat_tokenizer()).dialogue(messages, [0, 1])
    assert trained_text(chat_tokenizer(), sequence).startswith("I add them.\n<tool_call>")
    messages[1]["content"] = "<think>Adding?</think>\n"
    (sequence,) = encoder_of(chat_tokenizer(either)).dialogue(messages, [0, 1])
    assert trained_text(chat_tokenizer(), sequence).startswith('{"name": "python"')


def test_date_of_a_template_is_not_todays() -> None:
    """A run that resumes on another day has the same tokens."""
    dated = "{{ strftime_now('%d %b %Y') }}" + CHATML.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    tokenizer, messages = chat_tokenizer(dated), [said("user", "1 + 1?"), said("assistant", "2")]
    stops = tokenizer.convert_tokens_to_ids(["<|im_end|>"])
    encoders = [ExampleEncoder(tokenizer, stops), ExampleEncoder(tokenizer, stops, date=datetime.date(2026, 2, 1))]
    texts = [tokenizer.decode(encoder.dialogue(messages, [0, 1])[0].token_ids) for encoder in encoders]
    assert [text.partition("<")[0] for text in texts] == ["26 Jul 2024", "01 Feb 2026"]
