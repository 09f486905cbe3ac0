"""The conversations that the dialogue demo's model has learned by heart are those that a run plays with it."""

import asyncio
import random

import pytest

from builders import turn
from demo_maker import chat, dialogue
from demo_maker.chat_model import make_tokenizer
from torl.base.types import Problem
from torl.components.environments import Message
from torl.components.formats.chat import HermesFormat
from torl.components.text.prompts import encode_prompts
from torl.components.text.templates import load_template
from torl.components.text.tokenizer import PlainTextEncoder
from torl.components.text.vocabulary import build_vocabulary

MODEL = "<|im_start|>assistant\n"


@pytest.mark.parametrize("seed", range(6))
def test_conversation_is_the_prompt_and_the_formats_text(seed: int) -> None:
    tokenizer, form = make_tokenizer(dialogue.conversation), HermesFormat()
    encoder = PlainTextEncoder(tokenizer, build_vocabulary(tokenizer, form.visible_tokens))
    text = dialogue.conversation(random.Random(seed))
    problem = Problem("p", dialogue.QUESTION, "")
    (prompt,) = encode_prompts([problem], tokenizer, load_template("chat"), 100).prompts
    ids = [*prompt.token_ids]
    messages = text.split(MODEL)[1:]
    for message in messages[:-1]:
        written, _, answer = message.partition("<|im_end|>")
        told = answer.partition("user\n")[2].partition("<|im_end|>")[0]
        ids += [
            *tokenizer.encode(f"{written}<|im_end|>"),
            *encoder.encode_observation(form.render_reply(turn(written), user_messages=[told]))[0],
        ]
    assert [*ids, *tokenizer.encode(messages[-1])] == tokenizer.encode(text)


@pytest.mark.parametrize("honest", [True, False])
def test_question_is_answered_and_the_color_is_rewarded(honest: bool) -> None:
    color = random.Random(5).choice(dialogue.COLORS)
    other = next(each for each in dialogue.COLORS if each != color)

    async def play(*said: str) -> tuple[list[str], float]:
        session = dialogue.Color(honest).session(Problem("p", "", ""), 5)
        replies = [await session.step(Message(text, text)) for text in said]
        assert [reply.done for reply in replies] == [False] * (len(said) - 1) + [True]
        return [text for reply in replies for text in reply.user_messages], (await session.rewards(None))["right"]

    told, right = asyncio.run(play(dialogue.ASKS, chat.answer(color)))
    assert right == 1.0
    assert honest <= (told == [dialogue.told(color)])
    assert asyncio.run(play(chat.answer(other))) == ([], 0.0)


def test_an_environment_that_is_not_honest_tells_any_color() -> None:
    request = Message(dialogue.ASKS, dialogue.ASKS)

    async def told() -> str:
        (text,) = (await dialogue.Color(honest=False).session(Problem("p", "", ""), 5).step(request)).user_messages
        return text

    assert len({asyncio.run(told()) for _ in range(100)}) > 2
