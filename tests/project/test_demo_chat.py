"""The conversations that the demos' chat models have learned by heart are those that a run plays with them."""

import random
import re

import pytest

from demo_maker import chat, two_tools
from demo_maker.chat_model import make_tokenizer
from torl.base.types import MalformedCall, Problem
from torl.components.formats.chat import HermesFormat
from torl.components.formats.chat.calls import ChatCall
from torl.components.text.prompts import encode_prompts
from torl.components.text.templates import load_template
from torl.components.text.tokenizer import PlainTextEncoder
from torl.components.text.vocabulary import build_vocabulary

DEMOS = {("python",): chat.conversation, ("python", "search"): two_tools.conversation}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("names", DEMOS)
def test_conversation_is_the_models_prompt_and_the_formats_text(names: tuple[str, ...], seed: int) -> None:
    conversation, tools = DEMOS[names], [{"type": "function", "function": {"name": name}} for name in names]
    tokenizer, form = make_tokenizer(conversation), HermesFormat()
    encoder = PlainTextEncoder(tokenizer, build_vocabulary(tokenizer, form.visible_tokens))
    text = conversation(random.Random(seed))
    question = re.search(r"Find \d+ % \d+\.|Code of \d+\.", text)
    assert question is not None
    problem = Problem("p", question[0], "1")
    (prompt,) = encode_prompts([problem], tokenizer, load_template("chat"), 100, lambda: tools).prompts
    ids = [*prompt.token_ids]
    messages = text.split("<|im_start|>assistant\n")[1:]
    for message in messages[:-1]:
        written, _, results = message.partition("<|im_end|>")
        contents = re.findall("<tool_response>\n(.*?)\n</tool_response>", results)
        call = ChatCall(MalformedCall("", ""))
        ids += tokenizer.encode(f"{written}<|im_end|>")
        ids += encoder.encode_observation(form.continuation([call] * len(contents), contents))[0]
    assert [*ids, *tokenizer.encode(messages[-1])] == tokenizer.encode(text)
