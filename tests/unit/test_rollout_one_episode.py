"""Single episodes with an engine that says what it is told."""

import asyncio
from typing import Any

import pytest

from scripted_engine import ScriptedEngine, ScriptedInterpreter
from tokenizers_for_tests import END, byte_level_bpe
from torl.algorithms.selection import has_void_turn, invents_output
from torl.errors import SandboxError
from torl.metrics.blocks import split_turns, written_blocks
from torl.rollout.episode import EpisodePlayer, EpisodeSettings
from torl.rollout.formats import TOO_LONG, Format, ToRLFormat, ZeroTIRFormat
from torl.rollout.tokenizer import TextEncoder
from torl.rollout.vocabulary import build_vocabulary
from torl.types import FinishReason, Outcome, Problem, Prompt, Trajectory

TOKENIZER = byte_level_bpe()
VOCABULARY = build_vocabulary(TOKENIZER)
ENCODER = TextEncoder(TOKENIZER, VOCABULARY)
CALL = "Let me see.\n```python\nprint(6*7)\n```\n```output"


def play(
    *turns: str,
    calls: int = 1,
    limit: int = 200,
    piece: int = 1,
    stdout: str = "42\n",
    form: Format | None = None,
    early: bool = False,
) -> tuple[Trajectory, EpisodePlayer]:
    engine = ScriptedEngine(
        lambda request: ENCODER.encode(turns[int(request.rsplit("/", 1)[1])]),
        lambda _: (piece,),
    )
    player = EpisodePlayer(
        engine,
        ScriptedInterpreter(lambda _: stdout),
        VOCABULARY,
        ENCODER,
        form or ToRLFormat(calls),
        EpisodeSettings(limit, speculative_execution=early),
    )
    prompt = Prompt(Problem("seven", "", ""), tuple(ENCODER.encode("Question\n")))
    return asyncio.run(player.play(prompt, step=0, sample=0)), player


def test_one_call() -> None:
    trajectory, _ = play(CALL, "So \\boxed{42}.")
    assert trajectory.text == f"{CALL}\n42\n```\nSo \\boxed{{42}}."
    assert trajectory.sampled_text == f"{CALL}\nSo \\boxed{{42}}."
    (call,) = trajectory.tool_calls
    assert call.code == "print(6*7)\n"
    assert call.outcome.stdout == "42\n"
    assert trajectory.finish_reason is FinishReason.STOP
    assert trajectory.group == "0/seven"


def test_after_the_last_call_the_marker_is_text() -> None:
    trajectory, player = play(CALL, f"Again.\n{CALL}\n7\n```\nDone.")
    assert len(trajectory.tool_calls) == 1
    assert trajectory.text.endswith("```output\n7\n```\nDone.")
    assert player.counters.dropped_tokens == 0
    trajectory, _ = play(f"{CALL}\n7\n```\n", calls=0)
    assert not trajectory.tool_calls
    assert trajectory.loss_mask_T.all()


def test_tokens_after_the_marker_are_dropped_and_counted() -> None:
    invented = f"{CALL}\n43\n```\nSo 43."
    whole, player = play(invented, "So 42.", piece=1000)
    assert whole.text == f"{CALL}\n42\n```\nSo 42."
    assert player.counters.dropped_tokens == len(ENCODER.encode(invented)) + 1 - whole.turns[0].stop > 0


def test_a_marker_without_code_is_a_call() -> None:
    trajectory, player = play("Hm.\n```output", "```output", "Done.", calls=2)
    assert [call.code for call in trajectory.tool_calls] == ["", ""]
    assert all("NoCode" in call.observation for call in trajectory.tool_calls)
    assert player.counters.calls_without_code == 2
    assert player.interpreter.codes == []


def test_a_block_of_an_earlier_turn_does_not_run_again() -> None:
    trajectory, player = play(CALL, "And again?\n```output", "Done.", calls=2)
    assert player.interpreter.codes == ["print(6*7)\n"]
    assert trajectory.tool_calls[1].outcome.exception_type == "NoCode"


def test_the_last_of_several_blocks_runs() -> None:
    _, player = play(f"```python\nx = 1\n```\n{CALL}", "Done.")
    assert player.interpreter.codes == ["print(6*7)\n"]


def test_an_observation_is_cut_at_the_limit() -> None:
    first = len(ENCODER.encode(CALL))
    trajectory, _ = play(CALL, "never", limit=first + 3, stdout="123456789\n")
    (call,) = trajectory.tool_calls
    assert (call.start, call.stop) == (first, first + 3)
    assert trajectory.finish_reason is FinishReason.LENGTH
    assert len(trajectory.turns) == 1
    assert not trajectory.loss_mask_T[first:].any()


def test_a_marker_at_the_limit_runs_nothing() -> None:
    trajectory, player = play(CALL, "never", limit=len(ENCODER.encode(CALL)))
    assert player.interpreter.codes == []
    assert not trajectory.tool_calls
    assert trajectory.finish_reason is FinishReason.LENGTH


def test_an_observation_that_ends_exactly_at_the_limit() -> None:
    first = len(ENCODER.encode(CALL))
    trajectory, _ = play(CALL, "never", limit=first + len(ENCODER.encode("\n42\n```\n")))
    assert trajectory.text == f"{CALL}\n42\n```\n"
    assert trajectory.finish_reason is FinishReason.LENGTH
    assert len(trajectory.turns) == 1


def test_code_that_prints_the_end_of_text_does_not_end_the_episode() -> None:
    trajectory, _ = play(CALL, "Done.", stdout=f"{END}\n")
    assert trajectory.text == f"{CALL}\n{END}\n```\nDone."
    assert trajectory.token_ids_T.tolist().count(TOKENIZER.eos_token_id) == 1


def test_a_broken_sandbox_ends_the_episode() -> None:
    engine = ScriptedEngine(lambda _: ENCODER.encode(CALL))
    interpreter = ScriptedInterpreter(fail_with=SandboxError("no guest"))
    player = EpisodePlayer(engine, interpreter, VOCABULARY, ENCODER, ToRLFormat(1), EpisodeSettings(100))
    with pytest.raises(SandboxError, match="no guest"):
        asyncio.run(player.play(Prompt(Problem("p", "", ""), (1, 2)), step=0, sample=0))
    assert engine.open == 0


def test_seeds_name_the_turn_and_snippets_of_a_problem_share_theirs() -> None:
    async def play_all(seed: int) -> tuple[set[int], set[int]]:
        engine = ScriptedEngine(lambda request: ENCODER.encode(CALL if request.endswith("/0") else "x"))
        interpreter = ScriptedInterpreter()
        player = EpisodePlayer(engine, interpreter, VOCABULARY, ENCODER, ToRLFormat(1), EpisodeSettings(100, seed=seed))
        for step in (0, 1):
            for sample in (0, 1):
                await player.play(Prompt(Problem("p", "", ""), (1, 2)), step=step, sample=sample)
        return {request.sampling.seed or 0 for request in engine.requests.values()}, set(interpreter.seeds)

    turns, runs = asyncio.run(play_all(0))
    assert len(turns) == 8
    assert len(runs) == 2  # one for each step
    other_turns, other_runs = asyncio.run(play_all(1))
    assert not turns & other_turns
    assert not runs & other_runs


@pytest.mark.parametrize("prompt", [(), (TOKENIZER.eos_token_id,)])
def test_a_prompt_without_text_begins_a_line(prompt: tuple[int, ...]) -> None:
    """A response whose first characters are a fence opens a block: nothing stands before it."""
    engine = ScriptedEngine(lambda request: ENCODER.encode(CALL.partition("\n")[2] if request[-1] == "0" else "x"))
    player = EpisodePlayer(
        engine, ScriptedInterpreter(), VOCABULARY, ENCODER, ToRLFormat(1), EpisodeSettings(200, seed=0)
    )
    trajectory = asyncio.run(player.play(Prompt(Problem("p", "", ""), prompt), step=0, sample=0))
    assert [call.code for call in trajectory.tool_calls] == ["print(6*7)\n"]


def test_a_prompt_that_ends_inside_a_line_leaves_a_fence_text() -> None:
    engine = ScriptedEngine(lambda request: ENCODER.encode(CALL.partition("\n")[2] if request[-1] == "0" else "x"))
    player = EpisodePlayer(
        engine, ScriptedInterpreter(), VOCABULARY, ENCODER, ToRLFormat(1), EpisodeSettings(200, seed=0)
    )
    prompt = Prompt(Problem("p", "", ""), tuple(ENCODER.encode("<think>")))
    (call,) = asyncio.run(player.play(prompt, step=0, sample=0)).tool_calls
    assert call.outcome.exception_type == "NoCode"


class EndlessInterpreter(ScriptedInterpreter):
    """No run of it ends unless it is cancelled."""

    async def run_async(self, code: str, *, seed: int = 0) -> Outcome:
        self.codes.append(code)
        self.running += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.running -= 1
        raise AssertionError("unreachable")


def test_an_episode_leaves_no_early_run_behind() -> None:
    """A block was written and begun, and the response ended without asking for it."""

    async def main() -> int:
        text = "\n```python\nwhile True: pass\n```\nBut \\boxed{42}."
        interpreter = EndlessInterpreter()
        engine = ScriptedEngine(lambda _: ENCODER.encode(text))
        settings = EpisodeSettings(200, speculative_execution=True)
        player = EpisodePlayer(engine, interpreter, VOCABULARY, ENCODER, ToRLFormat(1), settings)
        before = asyncio.all_tasks()
        await player.play(Prompt(Problem("p", "", ""), (1,)), step=0, sample=0)
        assert interpreter.codes == ["while True: pass\n"]
        assert asyncio.all_tasks() == before
        assert (player.counters.tool.speculated, player.counters.tool.wasted) == (1, 1)
        return interpreter.running

    assert asyncio.run(main()) == 0


# --- ZeroTIR ------------------------------------------------------------------------------------------------------

BLOCK = "Let me see.\n```python\nprint(6*7)\n```"


def play_zerotir(*turns: str, calls: int = 2, **options: Any) -> tuple[Trajectory, EpisodePlayer]:
    return play(*turns, form=ZeroTIRFormat(lambda text: len(ENCODER.encode(text)), calls), **options)


def test_a_block_runs_when_its_fence_closes() -> None:
    trajectory, player = play_zerotir(f"{BLOCK}\n```output\n43\n```\n", "So \\boxed{42}.", piece=1000)
    assert trajectory.text == f"{BLOCK}\n```output\n42\n```\n\n\nSo \\boxed{{42}}."
    assert player.counters.dropped_tokens > 0  # the output that the model invented
    assert [call.code for call in trajectory.tool_calls] == ["print(6*7)\n"]
    assert trajectory.format == "zerotir"
    turns = split_turns(trajectory.sampled_text, 1, "zerotir")
    assert turns[0] == BLOCK
    assert turns[1].strip() == "So \\boxed{42}."


def test_each_block_is_a_call_until_none_is_left() -> None:
    two = "```python\nprint(1)\n```"
    trajectory, player = play_zerotir(f"{two} rest", f"{two} rest", f"{two}\nDone.", calls=2)
    assert player.interpreter.codes == ["print(1)\n"] * 2
    assert len(trajectory.turns) == 3
    assert trajectory.text.endswith(f"{two}\nDone.")
    assert len(written_blocks(trajectory.sampled_text, 2, "zerotir")) == 3
    assert not has_void_turn(trajectory)
    assert not invents_output(trajectory)


def test_without_interactions_fences_and_output_are_text() -> None:
    trajectory, player = play_zerotir(f"{BLOCK}\n```output\n43\n```\nDone.", calls=0)
    assert player.interpreter.codes == []
    assert trajectory.loss_mask_T.all()
    assert trajectory.text.endswith("43\n```\nDone.")
    assert invents_output(trajectory)


def test_a_long_result_becomes_a_sentence() -> None:
    trajectory, _ = play_zerotir(BLOCK, "Hm.", stdout="7 " * 500, limit=600)
    assert trajectory.text == f"{BLOCK}\n```output\n{TOO_LONG}\n```\n\n\nHm."
