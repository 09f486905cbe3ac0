"""The vocabularies of pre-trained models: prompts, scanner, and observations that are spliced in."""

import asyncio
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from transformers import AutoTokenizer

from builders import asked, player
from scripted_engine import ScriptedEngine, ScriptedInterpreter
from torl._core import Scanner, StopCondition, Vocabulary
from torl.components.text.prompt_encoder import PromptEncoder
from torl.components.text.templates import Conversation
from torl.components.text.tokenizer import PlainTextEncoder, stop_token_ids
from torl.components.text.vocabulary import build_vocabulary
from torl.recipes.torl import ToRLFormat
from torl.run.config import RolloutConfig
from torl_lab.audit.replay import ReplayContext
from torl_lab.audit.tokens import token_mismatch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PIECES = [
    *("```python\n", "```\n", "x = 1\n", "print('数 ``` ü')\n"),
    *("text ", "\n", "    y\t= '\\n'\n", "``", "`", "🙂"),
]
OPENINGS = ["", "Wie groß? 数\n", "🙂 "]
CONVERSATIONS = [
    [{"role": "user", "content": "What is 2 + 2?"}],
    [{"role": "system", "content": "Use Python."}, {"role": "user", "content": "Wie groß ist √2?\n\n  Ümläute 数学"}],
    [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "```python\nprint(1)\n```"},
        {"role": "user", "content": "again"},
    ],
]
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
}


@pytest.fixture(scope="module")
def vocabulary(tokenizer: "PreTrainedTokenizerFast") -> Vocabulary:
    return build_vocabulary(tokenizer)


@pytest.mark.parametrize("tools", [(), ({"type": "function", "function": ADD},)], ids=["no tools", "tools"])
def test_prompts_are_those_of_the_models_own_template_token_for_token(
    directory: Path, tokenizer: "PreTrainedTokenizerFast", tools: tuple[dict[str, object], ...]
) -> None:
    if not tokenizer.chat_template:
        pytest.skip("the model has no chat template")
    encoder, oracle = PromptEncoder(tokenizer), AutoTokenizer.from_pretrained(directory)
    for messages in CONVERSATIONS:
        expected = oracle.apply_chat_template(
            messages, tools=list(tools) or None, add_generation_prompt=True, return_dict=False
        )
        assert encoder.encode("p", Conversation(messages), (), tools) == tuple(expected)


def tokens_with_cuts(text: str, tokenizer: "PreTrainedTokenizerFast", generator: random.Random) -> list[int]:
    """The same text in other tokens: cut at random places before it is encoded."""
    cuts = sorted(generator.sample(range(len(text)), min(3, len(text))))
    parts = [text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return [token for part in parts for token in tokenizer.encode(part, add_special_tokens=False)]


def test_the_scanner_finds_blocks_and_markers_in_the_models_tokens(
    tokenizer: "PreTrainedTokenizerFast", vocabulary: Vocabulary
) -> None:
    generator, seen = random.Random(0), 0
    for _ in range(300):
        text = "".join(generator.choices(PIECES, k=generator.randint(1, 12))) + "\n```output\nrest"
        tokens = tokens_with_cuts(text, tokenizer, generator)
        if vocabulary.decode(tokens) != text:
            continue  # a tokenizer may not keep every cut
        seen += 1
        found = Scanner(vocabulary, StopCondition.marker(b"```output")).feed(tokens)
        first = re.search(r"^```output", text, re.MULTILINE)
        assert found.marker is not None
        assert first is not None
        assert found.marker.start == len(text[: first.start()].encode())
        consumed = vocabulary.decode(tokens[: found.consumed])
        assert len(consumed.encode()) >= found.marker.stop
        assert len(vocabulary.decode(tokens[: found.consumed - 1]).encode()) < found.marker.stop
    assert seen > 250


def test_observations_are_spliced_between_the_models_tokens(
    directory: Path, tokenizer: "PreTrainedTokenizerFast", vocabulary: Vocabulary
) -> None:
    encoder, ends = PlainTextEncoder(tokenizer, vocabulary), stop_token_ids(directory, tokenizer)
    form, limit = ToRLFormat(), 4000
    rollout = RolloutConfig.model_validate({"format": "torl", "max_tool_calls": 2, "max_response_tokens": limit})
    context = ReplayContext(form, vocabulary, encoder, frozenset(ends), frozenset({"python"}), rollout)
    generator, seen = random.Random(1), 0
    for _ in range(60):
        turns = [f"{generator.choice(OPENINGS)}\n```python\nprint({number})\n```\n```output" for number in range(2)]
        turns.append("So it is \\boxed{1}.")
        script = [[*tokens_with_cuts(text, tokenizer, generator), ends[0]] for text in turns]
        if [vocabulary.decode(tokens[:-1]) for tokens in script] != turns:
            continue
        seen += 1
        # A control token in the output of a program stays text.
        outputs = [f"{tokenizer.eos_token} {'数 ü 🙂 ' * generator.randint(0, 3)}1 000", "2.50\n\t```"]
        engine = ScriptedEngine(
            lambda request, script=script: script[int(request.rsplit("/", 1)[1])],
            vocabulary=vocabulary,
            stop_token_ids=frozenset(ends),
        )
        interpreter = ScriptedInterpreter(lambda code, outputs=outputs: outputs["print(1)" in code])
        playing = player(
            engine,
            interpreter,
            form=form,
            limit=limit,
            vocabulary=vocabulary,
            encoder=encoder,
            max_tool_calls=2,
            speculative_execution=False,
        )
        prompt = asked(question="q", answer="1", token_ids=encoder.encode("What is 1?\n"))
        trajectory = asyncio.run(playing.play(prompt, batch_id=0, sample=0))
        assert token_mismatch(trajectory, context) is None
        ids, calls = trajectory.token_ids_T.tolist(), trajectory.tool_calls
        assert [call.observation for call in calls] == [f"\n{output}\n```\n" for output in outputs]
        parts = [part for turn, call in zip(turns, calls, strict=False) for part in (turn, call.observation)]
        assert vocabulary.decode(ids) == "".join([*parts, turns[-1], vocabulary.decode([ends[0]])])
        sampled = [*script[0][:-1], *script[1][:-1], *script[2]]
        assert trajectory.token_ids_T[trajectory.loss_mask_T].tolist() == sampled
        assert not set(ends) & {token for call in calls for token in ids[call.start : call.stop]}
    assert seen > 40
