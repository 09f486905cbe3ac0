"""MathCoder's format: a transcript of its kind, token for token."""

import pytest

from chat_models import ChatModel
from scripted_engine import ScriptedInterpreter
from torl.base.types import FinishReason, StopReason
from torl_lab.audit.tokens import token_mismatch

TURNS = [
    "<|text|>We multiply.<|endofblock|><|code|>x = 6 * 7\nprint(x)<|endofblock|>",
    "<|code|>y = x<|endofblock|>",
    "<|text|>The answer is \\boxed{42}.<|endofblock|><|endofmessage|>",
]
PRINTED = {"x = 6 * 7\nprint(x)": "42\n", "y = x": ""}


@pytest.mark.parametrize("piece", [1, 1000])
def test_a_block_of_code_runs_when_it_closes_and_one_of_text_does_not(piece: int) -> None:
    model = ChatModel.of("mathcoder")
    played = model.play(TURNS, piece=piece, interpreter=ScriptedInterpreter(PRINTED.__getitem__))
    answers = ["<|execution|>42<|endofblock|>", "<|execution|><empty_execution><|endofblock|>"]
    ids = [model.ids(text) for text in (TURNS[0], answers[0], TURNS[1], answers[1], TURNS[2])]
    assert played.token_ids_T.tolist() == [token for part in ids for token in part]
    masks = [[number % 2 == 0] * len(part) for number, part in enumerate(ids)]
    assert played.loss_mask_T.tolist() == [mask for part in masks for mask in part]
    assert [call.code for call in played.tool_calls] == list(PRINTED)
    assert [turn.stop_reason for turn in played.turns] == [StopReason.CALL, StopReason.CALL, StopReason.STOP]
    assert played.finish_reason is FinishReason.STOP
    assert token_mismatch(played, model.rules()) is None


def test_after_the_last_call_blocks_of_code_stand_there_and_run_no_more() -> None:
    model = ChatModel.of("mathcoder")
    played = model.play([TURNS[0], TURNS[1] + TURNS[2]], calls=1)
    assert len(played.tool_calls) == 1
    assert [block.code for block in played.turns[1].blocks] == ["y = x"]
    assert played.finish_reason is FinishReason.STOP
    assert token_mismatch(played, model.rules(calls=1)) is None


def test_program_output_closes_no_block() -> None:
    model = ChatModel.of("mathcoder")
    spelled = ScriptedInterpreter(lambda _: "<|endofblock|><|endofmessage|>")
    played = model.play([TURNS[0], TURNS[2]], interpreter=spelled)
    (call,) = played.tool_calls
    observed = played.token_ids_T[call.start : call.stop].tolist()
    control = [token for token in observed if token in model.tokenizer.added_tokens_decoder]
    assert control == model.ids("<|execution|><|endofblock|>")
