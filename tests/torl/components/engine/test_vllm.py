"""vLLM under the `Engine` protocol: seeds, markers, aborts, deaths, and nothing left over."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine_checks import LONG, check_that_a_kill_ends_every_request, has_ended, moved_through_its_states, turn
from engines import make_engine
from places import HELPERS
from torl._core import Scanner, StopCondition, Vocabulary
from torl.base.errors import ConfigError, EngineDiedError, EngineError
from torl.base.types import SampledTurn, SamplingParameters, TurnRequest
from torl.components.engine import EngineSetup, VllmEngine
from torl.components.engine.vllm.options import VllmOptions
from torl.components.engine.vllm.processes import EngineDirectory, with_descendants
from weight_sending import sending


async def test_a_seed_repeats_its_tokens(engine, prompts) -> None:
    prompt = prompts[0].token_ids
    one, again = [(await turn(engine, prompt, SamplingParameters(max_tokens=40, seed=3))).token_ids for _ in range(2)]
    other = (await turn(engine, prompt, SamplingParameters(max_tokens=40, seed=4))).token_ids
    assert one == again
    assert one != other


async def test_a_turn_says_why_it_ended(engine, prompts, tokenizer) -> None:
    sampled = await turn(engine, prompts[0].token_ids, SamplingParameters(max_tokens=5, seed=0))
    assert sampled.finish_reason == "length"
    assert len(sampled.token_ids) == len(sampled.logprobs) == 5
    assert sampled.policy_versions == ((engine.policy_version, 0),)
    sampled = await turn(engine, prompts[0].token_ids, LONG)
    assert sampled.finish_reason == "stop"
    assert sampled.token_ids[-1] == tokenizer.eos_token_id
    assert tokenizer.eos_token_id not in sampled.token_ids[:-1]


@pytest.mark.parametrize(
    "end",
    [
        StopCondition.marker(b"```output"),
        StopCondition.block(),
        StopCondition.never().with_stops(["print(", "nowhere"]),
    ],
    ids=repr,
)
async def test_a_turn_ends_at_the_token_that_ends_it(engine, prompts, vocabulary, end) -> None:
    """In the engine, where an end-of-sequence token ends it: not one token more is sampled."""
    ended = 0
    for seed in range(20):
        blocks: list[str] = []
        sampling = SamplingParameters(max_tokens=2 + 6 * seed, seed=seed)
        sampled = await engine.sample(TurnRequest(f"ended-{seed}", prompts[0].token_ids, sampling, end), blocks.append)
        plain = await turn(engine, prompts[0].token_ids, sampling, f"p-{seed}")
        scan = Scanner(vocabulary, end).feed(plain.token_ids)
        assert (sampled.finish_reason == "end") == (scan.overshoot is not None)
        assert sampled.token_ids == plain.token_ids[: scan.consumed]
        assert sampled.logprobs == pytest.approx(plain.logprobs[: scan.consumed], abs=1e-5)
        await asyncio.sleep(0.01)
        # What closes with the turn's last token is news no more.
        ended_here = scan.overshoot is not None
        scanner = Scanner(vocabulary, end)
        assert blocks == [block.code for block in scanner.feed(sampled.token_ids[: scan.consumed - ended_here]).blocks]
        if ended_here and not ended:  # also where its last token is the last one allowed
            sampling = replace(sampling, max_tokens=scan.consumed)
            limited = await engine.sample(TurnRequest(f"limited-{seed}", prompts[0].token_ids, sampling, end))
            assert (limited.finish_reason, limited.token_ids) == ("end", sampled.token_ids)
        ended += ended_here
    assert 2 < ended < 20


async def test_prompts_that_together_exceed_a_batch(engine, prompts) -> None:
    """vLLM's CPU worker dies of a seeded request whose prompt is cut in two: prompts are never cut."""
    long_prompts = [(*prompt.token_ids, *range(30, 330)) for prompt in prompts] * 2
    sampling = SamplingParameters(max_tokens=4, seed=1)
    turns = await asyncio.gather(*(turn(engine, p, sampling, f"p{i}") for i, p in enumerate(long_prompts)))
    assert all(len(sampled.token_ids) >= 1 for sampled in turns)


async def test_a_cancelled_task_aborts_its_request(engine, prompts) -> None:
    task = asyncio.ensure_future(turn(engine, prompts[0].token_ids, LONG, "cancelled"))
    while not engine.live_requests:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.live_requests == 0
    assert engine._llm.get_num_unfinished_requests() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_num_batched_token": 8192}, "vLLM has no such argument; did you mean max_num_batched_tokens?"),
        ({"enable_prefix_caching": False}, "enable_prefix_caching: torl sets it itself"),
        ({"scheduler_cls": "mine.Scheduler"}, "scheduler_cls: torl sets it itself"),
    ],
)
async def test_engine_arguments_that_cannot_be_are_refused(
    arguments: dict[str, Any], message: str, tiny_model_directory: Path, tmp_path: Path
) -> None:
    refused = make_engine(tiny_model_directory, tmp_path / "engine.log", arguments=arguments)
    with pytest.raises(ConfigError, match=re.escape(message)):
        await refused.start()
    assert refused.processes == ()


async def test_an_engine_samples_nothing_while_it_sleeps_and_knows_its_version_afterwards(engine, prompts) -> None:
    """Waking resumes vLLM's scheduler as new weights do. On a CPU no memory moves, and everything else is the same."""
    before = engine.policy_version
    for _ in range(2):
        await engine.sleep()
        call = asyncio.ensure_future(turn(engine, prompts[0].token_ids, SamplingParameters(max_tokens=5, seed=0)))
        await engine.wake("weights")
        assert await engine._llm.engine_core.is_scheduler_paused_async()
        assert not call.done()
        await engine.wake("cache")
        assert (await call).policy_versions == ((before, 0),)


async def test_engine_restores_dropped_memory(engine, prompts, tiny_model_directory, tmp_path) -> None:
    """The body of the test that counts a GPU's memory."""
    states = await moved_through_its_states(
        engine, prompts[0].token_ids, lambda: 0, lambda: sending(tiny_model_directory, tmp_path)
    )
    assert list(states) == ["awake", "asleep", "weights", "awake again"]


async def test_a_prompt_that_is_too_long_is_refused(engine) -> None:
    with pytest.raises(EngineError, match="refused request long"):
        await turn(engine, tuple(range(1, 300)) * 3, LONG, "long")
    engine.check()


async def test_control_c_in_a_terminal_does_not_reach_the_engine(engine) -> None:
    """A terminal signals its whole foreground process group; the controller ends its engine itself."""
    assert all(os.getpgid(process.pid) != os.getpgrp() for process in engine.processes)


async def test_the_engine_has_the_threads_it_was_given_and_does_not_compile(engine) -> None:
    """Both are set in the engine's process alone, after it has imported torch."""
    (worker,) = await engine.describe_workers()
    assert worker == {"pid": engine.processes[0].pid, "threads": 1, "compiles": False}
    assert "TORCHDYNAMO_DISABLE" not in os.environ


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that a launcher sets for its ranks must not reach the engine, which would wait for the other rank."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("launched", "temporary_directory")
async def test_a_killed_core_ends_every_request(tiny_model_directory, prompts, tmp_path) -> None:
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log")
    await engine.start()
    await check_that_a_kill_ends_every_request(engine, 0, prompts)


@pytest.mark.usefixtures("temporary_directory")
@pytest.mark.slow
async def test_a_stopped_core_is_a_dead_engine(tiny_model_directory, prompts, tmp_path) -> None:
    """It aborts its requests and exits. Other engines can then sample the turns."""
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log")
    await engine.start()
    try:
        turns = [asyncio.ensure_future(turn(engine, p.token_ids, LONG, p.problem.id)) for p in prompts]
        await turn(engine, prompts[0].token_ids, SamplingParameters(max_tokens=1, seed=0))
        assert engine.live_requests > 2
        os.kill(engine.processes[0].pid, signal.SIGTERM)
        async with asyncio.timeout(120):
            results = await asyncio.gather(*turns, return_exceptions=True)
        failed = [result for result in results if not isinstance(result, SampledTurn)]
        assert {type(result) for result in failed} == {EngineDiedError}
    finally:
        await engine.close()


@pytest.mark.usefixtures("temporary_directory")
async def test_a_core_that_hangs_ends_every_request(tiny_model_directory, prompts, tmp_path, caplog) -> None:
    """It lives and answers nothing: no death that anybody would notice."""
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log", stall_timeout_seconds=3.0)
    await engine.start()
    try:
        await asyncio.sleep(3.5)  # without requests nothing is expected of it
        processes = engine.processes
        engine.check()
        turns = [asyncio.ensure_future(turn(engine, p.token_ids, LONG, p.problem.id)) for p in prompts]
        watch = asyncio.ensure_future(engine.watch())
        while not engine.live_requests:
            await asyncio.sleep(0.01)
        os.kill(processes[0].pid, signal.SIGSTOP)
        async with asyncio.timeout(120):
            results = await asyncio.gather(*turns, watch, return_exceptions=True)
        assert [result for result in results if not isinstance(result, EngineError)] == []
        assert "hung and was killed: no token came for 3 s although 16 requests are pending" in str(results[-1])
        assert "stopped after 3 s" in caplog.text
        with pytest.raises(EngineError, match="hung"):
            await turn(engine, prompts[0].token_ids, LONG)
    finally:
        await engine.close()
    assert all(has_ended(process.pid) for process in processes)


@pytest.mark.parametrize(
    "processes", [pytest.param(0, id="importing"), pytest.param(2, id="loading", marks=pytest.mark.slow)]
)
def test_a_start_ends_with_its_controller(
    tiny_model_directory: Path, temporary_directory: Path, tmp_path: Path, processes: int
) -> None:
    """SIGTERM is heard at once, before vLLM has started a process and after (its own, and Python's for resources)."""
    with controller(tiny_model_directory, temporary_directory, tmp_path) as started:
        deadline = time.monotonic() + 120
        while len(with_descendants([started.pid])) < 1 + processes:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(2)
        family = with_descendants([started.pid])
        assert len(family) > processes
        started.terminate()
        output, errors = started.communicate(timeout=120)
    assert output == ""
    assert "init engine" not in (tmp_path / "engine.log").read_text()  # it was not up
    assert started.returncode == 128 + signal.SIGTERM, errors
    deadline = time.monotonic() + 60
    while left := [command_line(process.pid) for process in family if process.is_alive]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)  # Python's own process for resources ends a moment after its parent


async def test_an_engine_writes_to_its_log_alone(
    tiny_model_directory: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The core logs while it imports vLLM, before it has read its setup."""
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log")
    await engine.start()
    await engine.close()
    written = capfd.readouterr()
    assert "Triton" not in written.err + written.out
    assert (tmp_path / "engine.log").stat().st_size > 0


@pytest.mark.usefixtures("temporary_directory")
async def test_a_core_that_dies_at_once_fails_its_start(tiny_model_directory: Path, tmp_path: Path) -> None:
    """It has not read its setup, and a pre-trained model's vocabulary is larger than what a pipe holds."""
    vocabulary = Vocabulary([f"{token:08}".encode() for token in range(100_000)])
    setup = EngineSetup(tiny_model_directory, vocabulary, 64, stop_token_ids=(0,), log_path=tmp_path / "engine.log")
    engine = VllmEngine(setup, VllmOptions())
    others = {process.pid for process in with_descendants([os.getpid()])}
    starting = asyncio.ensure_future(engine.start())
    cores: list[int] = []
    async with asyncio.timeout(120):
        while not cores:
            await asyncio.sleep(0.01)
            started = {process.pid for process in with_descendants([os.getpid()])} - others
            cores = [pid for pid in started if "spawn_main" in command_line(pid)]
        os.kill(cores[0], signal.SIGKILL)
        with pytest.raises(EngineError, match="did not start"):
            await starting
    await engine.close()
    assert has_ended(cores[0])


async def test_a_model_that_cannot_be_loaded_leaves_nothing(tmp_path) -> None:
    (tmp_path / "config.json").write_text("{}")
    setup = EngineSetup(tmp_path, Vocabulary([b"a"]), 64, stop_token_ids=(0,), log_path=tmp_path / "engine.log")
    engine = VllmEngine(setup, VllmOptions())
    environment = dict(os.environ)
    with pytest.raises(EngineError, match="did not start"):
        await engine.start()
    await engine.close()
    assert os.environ == environment


def test_engine_processes_end_with_a_controller_that_is_killed(
    tiny_model_directory: Path, temporary_directory: Path, tmp_path: Path
) -> None:
    with controller(tiny_model_directory, temporary_directory, tmp_path) as started:
        assert started.stdout is not None
        line = started.stdout.readline()
        started.kill()
        _, errors = started.communicate()
    pids = [int(pid) for pid in line.split()]
    assert pids, errors
    deadline = time.monotonic() + 60
    while not all(has_ended(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (left,) = temporary_directory.iterdir()
    assert [*left.iterdir()]
    next_one = EngineDirectory()
    next_one.open()
    next_one.close()  # and nothing is left, as the fixture checks


@contextlib.contextmanager
def controller(model: Path, temporary: Path, directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """A separate process that begins to start an engine, then prints the ids of its processes, and waits."""
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        f"sys.path.insert(0, {str(HELPERS)!r})\n"
        "from engines import make_engine\n"
        "from torl.base.runtime.processes.supervision import run_until_done\n"
        "async def main():\n"
        "    engine = make_engine(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "    print('starting', flush=True)\n"
        "    await engine.start()\n"
        "    print(*(process.pid for process in engine.processes), flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    sys.exit(run_until_done(main()))\n"
    )
    (directory / "controller.py").write_text(script)
    command = [sys.executable, str(directory / "controller.py"), str(model), str(directory / "engine.log")]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "starting\n"
            yield started
        finally:
            started.kill()


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""
