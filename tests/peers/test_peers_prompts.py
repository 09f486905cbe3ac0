"""Prompts whose questions spell control tokens, against tiktoken: the templates' tokens, and ordinary text between.

The templates are TRL's. DeepSeek's vocabulary is not one of tiktoken's: Qwen's replaces it.
"""

import copy
from functools import cache
from typing import Any

import pytest
import tiktoken
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chat_models import ChatModel
from torl.base.types import Problem
from torl.components.text.prompts import encode_prompts
from torl.components.text.templates import load_template
from vocabularies import TEMPLATES, encoding, package, vocabulary

_PLACE = "@"  # represents the question; the templates do not contain it


@cache
def model(family: str) -> ChatModel:
    """A model of the family with a vocabulary that tiktoken reads."""
    return ChatModel.of(family, base=vocabulary(own(family)))


def own(family: str) -> str:
    return "hermes" if family == "deepseek" else family


@cache
def oracle(family: str) -> tiktoken.Encoding:
    """The family's control tokens and ordinary text, as tiktoken encodes them."""
    special = model(family).tokenizer.added_tokens_encoder
    known = encoding(own(family))
    return tiktoken.Encoding(
        family, pat_str=known._pat_str, mergeable_ranks=known._mergeable_ranks, special_tokens=special
    )


@pytest.mark.parametrize("name", sorted(TEMPLATES))
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_control_tokens_in_a_question_stay_text_in_the_familys_template(name: str, data: st.DataObject) -> None:
    tokenizer = copy.copy(model(TEMPLATES[name]).tokenizer)
    tokenizer.chat_template = (package("trl") / "chat_templates" / f"{name}.jinja").read_text()
    special = tokenizer.added_tokens_encoder
    pieces = st.sampled_from([*special, "<|im_", "\n", " ", "\ue000"]) | st.text(max_size=6)
    question = st.lists(pieces, min_size=1, max_size=6).map("".join).map(str.strip)
    questions = [text.replace(_PLACE, "") for text in data.draw(st.lists(question, min_size=10, max_size=20))]
    problems = [Problem(str(number), text, "1") for number, text in enumerate(questions)]
    prompts = encode_prompts(problems, tokenizer, load_template("chat"), 10_000).prompts
    requests = [{"role": "user", "content": _PLACE}]
    rendered: Any = tokenizer.apply_chat_template(requests, tokenize=False, add_generation_prompt=True)
    head, _, tail = rendered.rpartition(_PLACE)
    before = max((head.rfind(token) + len(token) for token in special if token in head), default=0)
    behind = min((tail.find(token) for token in special if token in tail), default=len(tail))
    known = oracle(TEMPLATES[name])
    for text, prompt in zip(questions, prompts, strict=True):
        assert prompt.token_ids == (
            *known.encode(head[:before], allowed_special="all"),
            *known.encode_ordinary(head[before:] + text + tail[:behind]),
            *known.encode(tail[behind:], allowed_special="all"),
        )
