"""Single episodes with an engine that plays a script."""

import asyncio
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from builders import asked, player
from scripted_engine import ENCODER, STOP, VOCABULARY, ScriptedEngine, ScriptedInterpreter
from tokenizers_for_tests import END
from torl.base.errors import EngineError, SandboxError
from torl.base.types import Block, FinishReason, Outcome, SampledTurn, StopReason, Trajectory, Turn, TurnFinish
from torl.components.formats import Format
from torl.recipes.torl import ToRLFormat, ToRLOptions
from torl.recipes.zerotir import TOO_LONG, ZeroTIRFormat, ZeroTIROptions
from torl.rollout.observation import LONG_OBSERVATION
from torl.rollout.transcript import EpisodeCounters
from torl.run.records.row_types import MAX_OUTPUT_CHARACTERS
from torl_sandbox import Execution

CALL = "Let me see.\n```python\nprint(6*7)\n```\n```output"


@dataclass
class Played:
    """One episode, with its events."""

    trajectory: Trajectory
    counters: EpisodeCounters
    ran: list[str]  # the codes that were run


def play(
    *turns: str,
    calls: int = 1,
    limit: int = 200,
    piece: int = 1,
    stdout: str = "42\n",
    form: Format | None = None,
    stop: tuple[str, ...] = (),
) -> Played:
    engine = ScriptedEngine(
        lambda request: ENCODER.encode(turns[int(request.rsplit("/", 1)[1])]),
        lambda _: (piece,),
    )
    interpreter = ScriptedInterpreter(lambda _: stdout)
    playing = player(
        engine, interpreter, form=form, limit=limit, max_tool_calls=calls, stop=stop, speculative_execution=False
    )
    prompt = asked("seven", token_ids=ENCODER.encode("Question\n"))
    trajectory = asyncio.run(playing.play(prompt, batch_id=0, sample=0))
    return Played(trajectory, playing.counters, interpreter.codes)


def test_one_call() -> None:
    trajectory = play(CALL, "So \\boxed{42}.").trajectory
    assert trajectory.text == f"{CALL}\n42\n```\nSo \\boxed{{42}}."
    assert trajectory.sampled_text == f"{CALL}\nSo \\boxed{{42}}."
    (call,) = trajectory.tool_calls
    assert call.code == "print(6*7)\n"
    assert call.ran
    assert call.outcome.text == call.outcome.details["stdout"] == "42\n"
    assert trajectory.finish_reason is FinishReason.STOP
    assert trajectory.group_id == "0/seven"


def test_long_outputs_are_in_memory_once_and_as_short_as_in_records() -> None:
    """Episodes wait for the last one of their step: 2,048 with four outputs of 1 MiB would have 16 GiB."""
    for stdout in ("x" * (1 << 20) + "y\n", "x" * (1 << 20) + "\ud800y\n", "42\n"):
        (call,) = play(CALL, "So.", stdout=stdout).trajectory.tool_calls
        assert call.outcome.text == stdout[:MAX_OUTPUT_CHARACTERS]
        assert call.outcome.details["stdout"] is call.outcome.text
        assert call.observation.endswith("42\n```\n" if len(stdout) == 3 else "y\n```\n")  # from the whole output


def test_the_turns_of_an_episode_have_the_version_at_its_start() -> None:
    """An engine that keeps old keys and values lets only this episode read them."""

    class Learning(ScriptedEngine):
        @property
        def policy_version(self) -> int:
            return 5 + len(self.requests)

    turns = {"0": CALL, "1": "So."}
    engine = Learning(lambda name: ENCODER.encode(turns[name[-1]]))
    playing = player(engine, ScriptedInterpreter(lambda _: "42\n"), limit=200, max_tool_calls=1)
    asyncio.run(playing.play(asked("seven", token_ids=ENCODER.encode("Question\n")), batch_id=0, sample=0))
    assert [request.start_version for request in engine.requests.values()] == [5, 5]


def test_a_turn_knows_its_text_its_blocks_and_why_it_ended() -> None:
    first, second = play(CALL, "é\n```python\nx = 'é'\n```\nSo \\boxed{42}.").trajectory.turns
    code = CALL.index("print")
    assert (first.text, first.stop_reason) == (CALL, StopReason.CALL)
    (block,) = first.blocks
    assert block == Block("print(6*7)\n", code, code + len("print(6*7)\n"), block.token)
    assert second.stop_reason is StopReason.STOP
    (block,) = second.blocks
    assert second.text[block.start : block.stop] == block.code == "x = 'é'\n"
    tokens = ENCODER.encode(second.text)
    before = [VOCABULARY.decode(tokens[:count]) for count in (block.token, block.token + 1)]
    assert len(before[0]) <= block.start < len(before[1])
    cut = play("Let me see.", limit=2).trajectory
    assert [turn.stop_reason for turn in cut.turns] == [StopReason.LENGTH]
    assert cut.finish_reason is FinishReason.LENGTH


def test_after_the_last_call_the_marker_is_text() -> None:
    played = play(CALL, f"Again.\n{CALL}\n7\n```\nDone.")
    assert len(played.trajectory.tool_calls) == 1
    assert played.trajectory.text.endswith("```output\n7\n```\nDone.")
    assert played.counters.dropped_tokens == 0
    trajectory = play(f"{CALL}\n7\n```\n", calls=0).trajectory
    assert not trajectory.tool_calls
    assert trajectory.loss_mask_T.all()


def test_tokens_after_the_marker_are_dropped_and_counted() -> None:
    invented = f"{CALL}\n43\n```\nSo 43."
    played = play(invented, "So 42.", piece=1000)
    whole = played.trajectory
    assert whole.text == f"{CALL}\n42\n```\nSo 42."
    assert whole.turns[0].text == CALL
    assert played.counters.dropped_tokens == len(ENCODER.encode(invented)) + 1 - whole.turns[0].stop > 0


@pytest.mark.parametrize("calls", [0, 1])
@pytest.mark.parametrize("piece", [1, 1000])
def test_a_stop_string_ends_the_response_and_stays_in_it(calls: int, piece: int) -> None:
    expected = "So \\boxed{42}.\nUser:"
    played = play(f"{expected} And 43?\n{CALL}", calls=calls, piece=piece, stop=("Human:", "User:"))
    trajectory = played.trajectory
    assert trajectory.text.startswith(expected)
    assert len(trajectory) == next(
        n for n in range(99) if expected in VOCABULARY.decode(trajectory.token_ids_T[:n].tolist())
    )
    assert trajectory.loss_mask_T.all()
    assert trajectory.finish_reason is FinishReason.STOP
    assert [turn.stop_reason for turn in trajectory.turns] == [StopReason.STOP]
    assert (played.counters.dropped_tokens > 0) == (piece == 1000)


def test_a_stop_string_of_a_turn_after_a_call_ends_the_response() -> None:
    trajectory = play(CALL, "<answer>\\boxed{42}</answer> and so on", calls=2, stop=("</answer>",)).trajectory
    assert trajectory.text.startswith(f"{CALL}\n42\n```\n<answer>\\boxed{{42}}</answer>")
    assert "so on" not in trajectory.text
    assert [turn.stop_reason for turn in trajectory.turns] == [StopReason.CALL, StopReason.STOP]


def test_a_long_observation_is_made_while_other_episodes_go_on() -> None:
    """The answer of this format waits for the event loop: there it would wait in vain."""
    went_on = threading.Event()

    class Waiting(ToRLFormat):
        def render_observation(self, turn: Turn, outcomes: Sequence[Outcome]) -> str:
            assert went_on.wait(20), "the event loop stood still"
            return super().render_observation(turn, outcomes)

    class Signalling(ScriptedInterpreter):
        async def run_async(self, code: str, *, seed: int = 0) -> Execution:
            asyncio.get_running_loop().call_later(0.01, went_on.set)
            return await super().run_async(code, seed=seed)

    turns = [CALL, "So \\boxed{42}."]
    engine = ScriptedEngine(lambda request: ENCODER.encode(turns[int(request[-1])]))
    playing = player(engine, Signalling(lambda _: "4" * LONG_OBSERVATION), form=Waiting(), limit=400)
    played = asyncio.run(playing.play(asked(token_ids=ENCODER.encode("Q\n")), batch_id=0, sample=0))
    assert played.tool_calls[0].observation == f"\n{'4' * 128}...{'4' * 128}\n```\n"


def test_a_marker_without_code_is_a_call() -> None:
    played = play("Hm.\n```output", "```output", "Done.", calls=2)
    calls = played.trajectory.tool_calls
    assert [call.code for call in calls] == ["", ""]
    assert [call.request for call in calls] == [None, None]
    assert not any(call.ran for call in calls)
    assert all("NoCode" in call.observation for call in calls)
    assert played.counters.calls_without_request == 2
    assert played.ran == []


def test_a_block_of_an_earlier_turn_does_not_run_again() -> None:
    played = play(CALL, "And again?\n```output", "Done.", calls=2)
    assert played.ran == ["print(6*7)\n"]
    assert played.trajectory.tool_calls[1].outcome.error == "NoCode"


def test_the_last_of_several_blocks_runs() -> None:
    assert play(f"```python\nx = 1\n```\n{CALL}", "Done.").ran == ["print(6*7)\n"]


def test_an_observation_is_cut_at_the_limit() -> None:
    first = len(ENCODER.encode(CALL))
    trajectory = play(CALL, "never", limit=first + 3, stdout="123456789\n").trajectory
    (call,) = trajectory.tool_calls
    assert (call.start, call.stop) == (first, first + 3)
    assert trajectory.finish_reason is FinishReason.LENGTH
    assert len(trajectory.turns) == 1
    assert not trajectory.loss_mask_T[first:].any()


def test_a_marker_at_the_limit_runs_nothing() -> None:
    played = play(CALL, "never", limit=len(ENCODER.encode(CALL)))
    assert played.ran == []
    assert not played.trajectory.tool_calls
    assert played.trajectory.finish_reason is FinishReason.LENGTH


def test_an_observation_that_ends_exactly_at_the_limit() -> None:
    first = len(ENCODER.encode(CALL))
    trajectory = play(CALL, "never", limit=first + len(ENCODER.encode("\n42\n```\n"))).trajectory
    assert trajectory.text == f"{CALL}\n42\n```\n"
    assert trajectory.finish_reason is FinishReason.LENGTH
    assert len(trajectory.turns) == 1


def test_code_that_prints_the_end_of_text_does_not_end_the_episode() -> None:
    trajectory = play(CALL, "Done.", stdout=f"{END}\n").trajectory
    assert trajectory.text == f"{CALL}\n{END}\n```\nDone."
    assert trajectory.token_ids_T.tolist().count(STOP) == 1


def test_a_broken_sandbox_ends_the_episode() -> None:
    engine = ScriptedEngine(lambda _: ENCODER.encode(CALL))
    playing = player(engine, ScriptedInterpreter(fail_with=SandboxError("no guest")))
    with pytest.raises(SandboxError, match="no guest"):
        asyncio.run(playing.play(asked(), batch_id=0, sample=0))
    assert engine.open == 0


def test_an_engine_that_ends_a_turn_elsewhere_is_refused() -> None:
    class EndsAnywhere(ScriptedEngine):
        async def sample(self, *arguments: Any, **named: Any) -> SampledTurn:
            return replace(await super().sample(*arguments, **named), finish_reason=TurnFinish.END)

    playing = player(EndsAnywhere(lambda _: ENCODER.encode("no marker")), ScriptedInterpreter())
    with pytest.raises(RuntimeError, match="for an unfinished turn"):
        asyncio.run(playing.play(asked(), batch_id=0, sample=0))


def test_turn_with_a_logprob_that_is_not_finite_is_an_engine_error() -> None:
    class Diverged(ScriptedEngine):
        async def sample(self, *arguments: Any, **named: Any) -> SampledTurn:
            turn = await super().sample(*arguments, **named)
            return replace(turn, logprobs=(*turn.logprobs[:-1], math.nan), policy_versions=((7, 0),))

    playing = player(Diverged(lambda _: ENCODER.encode("x")), ScriptedInterpreter())
    with pytest.raises(EngineError, match="log-probabilities of policy version 7 are not finite"):
        asyncio.run(playing.play(asked(), batch_id=0, sample=0))


def test_seeds_name_the_turn_and_snippets_of_a_problem_share_theirs() -> None:
    async def play_four(seed: int) -> tuple[set[int], set[int]]:
        engine = ScriptedEngine(lambda request: ENCODER.encode(CALL if request.endswith("/0") else "x"))
        interpreter = ScriptedInterpreter()
        playing = player(engine, interpreter, limit=100, seed=seed)
        for series in (0, 1):
            for sample in (0, 1):
                await playing.play(asked(), batch_id=series, sample=sample)
        return {request.sampling.seed or 0 for request in engine.requests.values()}, set(interpreter.seeds)

    turns, runs = asyncio.run(play_four(0))
    assert len(turns) == 8
    assert len(runs) == 2  # one for each series
    other_turns, other_runs = asyncio.run(play_four(1))
    assert not turns & other_turns
    assert not runs & other_runs


@pytest.mark.parametrize("prompt", [(), (STOP,)])
def test_a_prompt_without_text_begins_a_line(prompt: tuple[int, ...]) -> None:
    """A response whose first characters are a fence opens a block: nothing precedes it."""
    (call,) = begin_with_a_fence(prompt).tool_calls
    assert call.code == "print(6*7)\n"


def test_a_prompt_that_ends_inside_a_line_leaves_a_fence_text() -> None:
    (call,) = begin_with_a_fence(tuple(ENCODER.encode("<think>"))).tool_calls
    assert call.outcome.error == "NoCode"


def begin_with_a_fence(prompt: tuple[int, ...]) -> Trajectory:
    engine = ScriptedEngine(lambda request: ENCODER.encode(CALL.partition("\n")[2] if request[-1] == "0" else "x"))
    playing = player(engine, ScriptedInterpreter())
    return asyncio.run(playing.play(asked(token_ids=prompt), batch_id=0, sample=0))


class EndlessInterpreter(ScriptedInterpreter):
    """No run of it ends unless it is cancelled."""

    async def run_async(self, code: str, *, seed: int = 0) -> Execution:
        self.codes.append(code)
        self.running += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.running -= 1
        raise AssertionError("unreachable")


def test_episode_leaves_no_speculative_run() -> None:
    """A block was written and begun, and the response ended without asking for it."""

    async def main() -> int:
        text = "\n```python\nwhile True: pass\n```\nBut \\boxed{42}."
        interpreter = EndlessInterpreter()
        engine = ScriptedEngine(lambda _: ENCODER.encode(text))
        playing = player(engine, interpreter, speculative_execution=True)
        before = asyncio.all_tasks()
        await playing.play(asked(token_ids=(1,)), batch_id=0, sample=0)
        assert interpreter.codes == ["while True: pass\n"]
        assert asyncio.all_tasks() == before
        assert (playing.counters.calls.speculated, playing.counters.calls.wasted) == (1, 1)
        return interpreter.running

    assert asyncio.run(main()) == 0


# --- turns with nothing to run ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn", "ends"),
    [
        ("Hm.\n```output", True),
        ("So \\boxed{42}.\n```output", False),  # has answered: the observation is that there was no code, as ever
        (CALL, False),
    ],
)
def test_a_run_may_end_episodes_at_a_turn_with_nothing_in_it(turn: str, ends: bool) -> None:
    def played(end_at_void_turn: bool) -> Trajectory:
        engine = ScriptedEngine(lambda request: ENCODER.encode(turn if request[-1] == "0" else "Done."))
        playing = player(engine, ScriptedInterpreter(), end_at_void_turn=end_at_void_turn)
        return asyncio.run(playing.play(asked(), batch_id=0, sample=0))

    if ends:
        ended = played(end_at_void_turn=True)
        assert (ended.finish_reason, ended.tool_calls) == (FinishReason.VOID, ())
        assert ended.sampled_text == ended.text == turn
        assert ended.loss_mask_T.all()
    for whole in [played(end_at_void_turn=False), *([] if ends else [played(end_at_void_turn=True)])]:
        assert (whole.finish_reason, len(whole.tool_calls)) == (FinishReason.STOP, 1)


# --- ZeroTIR ------------------------------------------------------------------------------------------------------

BLOCK = "Let me see.\n```python\nprint(6*7)\n```"
ZEROTIR = ZeroTIRFormat()


def play_zerotir(*turns: str, calls: int = 2, **options: Any) -> Played:
    return play(*turns, form=ZEROTIR, calls=calls, **options)


def test_a_block_runs_when_its_fence_closes() -> None:
    played = play_zerotir(f"{BLOCK}\n```output\n43\n```\n", "So \\boxed{42}.", piece=1000)
    trajectory = played.trajectory
    assert trajectory.text == f"{BLOCK}\n```output\n42\n```\n\n\nSo \\boxed{{42}}."
    assert played.counters.dropped_tokens > 0  # the output that the model invented
    assert [call.code for call in trajectory.tool_calls] == ["print(6*7)\n"]
    assert trajectory.format == "zerotir"
    first, second = trajectory.turns
    assert (first.text, first.stop_reason) == (BLOCK, StopReason.CALL)
    assert second.text.strip() == "So \\boxed{42}."


@pytest.mark.parametrize(
    ("written", "ran"),
    [
        ("Code: ```python\n  print(6*7)\n```", "  print(6*7)\n"),
        ("```python3\nprint(6*7)\n```", "print(6*7)\n"),
        ("1. So:\n   ```python\nprint(6*7)\n```", "print(6*7)\n"),
    ],
)
def test_torl_opens_blocks_as_its_published_code_does(written: str, ran: str) -> None:
    turns = (f"{written}\n```output", "Done.")
    assert play(*turns, form=ToRLFormat(ToRLOptions(fences="published"))).ran == [ran]
    assert play(*turns, form=ToRLFormat()).ran == []


@pytest.mark.parametrize(
    ("written", "ran"),
    [
        ("Code: ```python\nprint(6*7)\n```", "print(6*7)"),
        ("1. So:\n   ```python\n   print(6*7)\n   ```", "print(6*7)"),
        ("```python print(6*7)```", "print(6*7)"),
        ("```python3\nprint(6*7)\n```", "3\nprint(6*7)"),
        ("```python\nprint(6*7)```", "print(6*7)"),
    ],
)
def test_zerotir_runs_the_same_calls_as_published_code(written: str, ran: str) -> None:
    published = ZeroTIRFormat(ZeroTIROptions(fences="published"))
    assert play(f"{written} so", "Done.", form=published).ran == [ran]
    assert play(f"{written} so", "Done.", form=ZeroTIRFormat()).ran == []


def test_each_block_is_a_call_until_calls_run_out() -> None:
    two = "```python\nprint(1)\n```"
    played = play_zerotir(f"{two} rest", f"{two} rest", f"{two}\nDone.", calls=2)
    trajectory = played.trajectory
    assert played.ran == ["print(1)\n"] * 2
    assert len(trajectory.turns) == 3
    assert trajectory.text.endswith(f"{two}\nDone.")
    assert [[block.code for block in turn.blocks] for turn in trajectory.turns] == [["print(1)\n"]] * 3


def test_without_interactions_fences_and_output_are_text() -> None:
    played = play_zerotir(f"{BLOCK}\n```output\n43\n```\nDone.", calls=0)
    assert played.ran == []
    (turn,) = played.trajectory.turns
    assert played.trajectory.loss_mask_T.all()
    assert played.trajectory.text.endswith("43\n```\nDone.")
    assert [block.code for block in turn.blocks] == ["print(6*7)\n"]


def test_a_long_result_becomes_a_sentence() -> None:
    trajectory = play_zerotir(BLOCK, "Hm.", stdout="7 " * 500, limit=600).trajectory
    assert trajectory.text == f"{BLOCK}\n```output\n{TOO_LONG}\n```\n\n\nHm."
