"""The prompts of chat models to the letter, and their transcripts through the format of their calls."""

import pytest

from builders import asked, play_trajectories, player
from scripted_engine import ENCODER, ScriptedEngine, ScriptedInterpreter
from torl.base.types import FinishReason, Problem
from torl.components.text.templates import load_template
from torl.recipes.tora import ToRAFormat
from torl.recipes.torl import ToRLFormat
from torl.run.config import PromptConfig

PROGRAMS = (
    "Please integrate natural language reasoning with programs to solve the problem above, "
    "and put your final answer within \\boxed{}."
)
EXPECTED = {
    "qwen25_math": "<|im_start|>system\n"
    "Please reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
    "<|im_start|>user\nWhat {is} it?<|im_end|>\n<|im_start|>assistant\n",
    "qwen25_math_tir": f"<|im_start|>system\n{PROGRAMS}<|im_end|>\n"
    "<|im_start|>user\nWhat {is} it?<|im_end|>\n<|im_start|>assistant\n",
    "eurus": "<|im_start|>system\n\nWhen tackling complex reasoning tasks, you have access to the following actions. "
    "Use them as needed to progress through your thought process.\n\n"
    "[ASSESS]\n\n[ADVANCE]\n\n[VERIFY]\n\n[SIMPLIFY]\n\n[SYNTHESIZE]\n\n[PIVOT]\n\n[OUTPUT]\n\n"
    "You should strictly follow the format below:\n\n[ACTION NAME]\n\n# Your action step 1\n\n"
    "# Your action step 2\n\n# Your action step 3\n\n...\n\nNext action: [NEXT ACTION NAME]\n\n<|im_end|>\n"
    "<|im_start|>user\nWhat {is} it?\n\nPresent the answer in LaTex format: \\boxed{Your answer}<|im_end|>\n"
    "<|im_start|>assistant\n",
    "tora": "<|user|>\nWhat {is} it?\n<|assistant|>\n",
    "mathcoder": "<|system|><|text|><|endofblock|><|endofmessage|>"
    "<|user|><|text|>What {is} it?\n<|endofblock|><|endofmessage|><|assistant|>",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_prompt_of_a_chat_model(name: str) -> None:
    assert load_template(name)(Problem("p", "What {is} it?", "1")) == EXPECTED[name]


def test_custom_chatml_prompt() -> None:
    config = PromptConfig.model_validate({"template": {"name": "chatml", "system": "Be brief.", "suffix": " Go."}})
    prompt = config.template.bind()(Problem("p", "1 + 1?", "2"))
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1 + 1? Go.<|im_end|>\n<|im_start|>assistant\n"
    )


# As these models write: a block, its output, an error that is mended, the answer in words after the last output.
TRANSCRIPTS = {
    "qwen25_math_tir": [
        "To determine it, we compute.\n\n```python\nfrom sympy import *\nprint(6 * 7)\n```\n```output",
        "\nThe result is $42$. Therefore, the answer is $\\boxed{42}$.",
    ],
    "tora": [
        "```python\ndef solve():\n    return 6 * 7\n\nprint(solve())\n```\n```output",
        "I made an error.\n```python\nprint(42)\n```\n```output",
        "The answer is $\\boxed{42}$.",
    ],
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
async def test_a_transcript_of_such_a_model_is_played_as_it_was_written(name: str) -> None:
    turns = TRANSCRIPTS[name]
    engine = ScriptedEngine(lambda request: ENCODER.encode(turns[int(request.rsplit("/", 1)[1])]))
    form = ToRAFormat() if name == "tora" else ToRLFormat()
    playing = player(engine, ScriptedInterpreter(), form=form, limit=2000, max_tool_calls=4)
    prompt = asked(token_ids=ENCODER.encode(load_template(name)(Problem("p", "6 * 7?", "42"))))
    (trajectory,) = await play_trajectories(playing, [prompt], 0, 1)
    assert [turn.text for turn in trajectory.turns] == turns
    assert len(trajectory.tool_calls) == len(turns) - 1
    assert all(call.ran for call in trajectory.tool_calls)
    assert trajectory.finish_reason is FinishReason.STOP
