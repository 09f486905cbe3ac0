"""vLLM behind the `Engine` protocol: seeds, markers, aborts, deaths, and nothing left behind."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import make_engine

from torl._core import Vocabulary
from torl.errors import ConfigError, EngineError
from torl.rollout.turns import TurnEnd
from torl.types import SampledTurn, SamplingParameters

LONG = SamplingParameters(max_tokens=500, seed=11)


async def turn(engine: Any, prompt: tuple[int, ...], sampling: SamplingParameters, name: str = "turn") -> SampledTurn:
    return await engine.sample(prompt, sampling, name, end=None)


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


@pytest.mark.parametrize("marker", [b"```output", None], ids=["marker", "block"])
async def test_a_turn_ends_at_the_token_that_ends_it(engine, prompts, vocabulary, marker) -> None:
    """In the engine, where an end-of-sequence token ends it: not one token more is sampled."""
    ended = 0
    for seed in range(40):
        blocks: list[str] = []
        sampling = SamplingParameters(max_tokens=2 + 3 * seed, seed=seed)
        end = TurnEnd(marker, at_line_start=True)
        sampled = await engine.sample(
            prompts[0].token_ids,
            sampling,
            f"ended-{seed}",
            end=end,
            on_block=blocks.append,
        )
        plain = await turn(engine, prompts[0].token_ids, sampling, f"p-{seed}")
        scan = end.scanner(vocabulary).feed(plain.token_ids)
        assert (sampled.finish_reason == "end") == (scan.overshoot is not None)
        assert sampled.token_ids == plain.token_ids[: scan.consumed]
        assert sampled.logprobs == pytest.approx(plain.logprobs[: scan.consumed], abs=1e-5)
        await asyncio.sleep(0.01)
        # What closes with the turn's last token is news no more.
        assert blocks == [
            block.code for block in scan.blocks if scan.overshoot is None or block.token_index < scan.consumed - 1
        ]
        ended += scan.overshoot is not None
    assert 5 < ended < 39


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


async def test_a_prompt_that_is_too_long_is_refused(engine) -> None:
    with pytest.raises(EngineError, match="refused request long"):
        await turn(engine, tuple(range(1, 300)) * 3, LONG, "long")
    engine.check()


async def test_control_c_in_a_terminal_does_not_reach_the_engine(engine) -> None:
    """A terminal signals its whole foreground process group; the controller ends its engine itself."""
    assert all(os.getpgid(process.pid) != os.getpgrp() for process in engine.processes)


async def test_the_engine_has_the_threads_it_was_given_and_does_not_compile(engine) -> None:
    """Both are said to the engine's process alone, after it has imported torch."""
    (worker,) = await engine.describe_workers()
    assert worker == {"pid": engine.processes[0].pid, "threads": 1, "compiles": False}
    assert "TORCHDYNAMO_DISABLE" not in os.environ


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a launcher sets for its ranks; it must not reach the engine, which would wait for the other rank."""
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("launched")
async def test_a_killed_core_ends_every_request(tiny_model_directory, prompts, tmp_path) -> None:
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log")
    await engine.start()
    await check_that_a_kill_ends_every_request(engine, 0, prompts)


async def check_that_a_kill_ends_every_request(engine: Any, victim: int, prompts: list[Any]) -> None:
    """Kill the process; every request, the watch and every later call raise, and nothing is left."""
    try:
        processes = engine.processes
        turns = [asyncio.ensure_future(turn(engine, p.token_ids, LONG, p.problem.id)) for p in prompts]
        watch = asyncio.ensure_future(engine.watch())
        while not engine.live_requests:
            await asyncio.sleep(0.01)
        assert not any(task.done() for task in [watch, *turns])
        os.kill(processes[victim].pid, signal.SIGKILL)
        async with asyncio.timeout(120):  # a death that is not noticed would leave them waiting for ever
            results = await asyncio.gather(*turns, watch, return_exceptions=True)
        assert all(isinstance(result, EngineError) for result in results)
        assert "engine.log" in str(results[0])
        with pytest.raises(EngineError, match="died"):
            await turn(engine, prompts[0].token_ids, LONG)
    finally:
        await engine.close()
    assert all(has_ended(process.pid) for process in processes)


async def test_a_model_that_cannot_be_loaded_leaves_nothing(tmp_path) -> None:
    from torl.config import EngineConfig
    from torl.rollout.vllm_engine import VllmEngine

    (tmp_path / "config.json").write_text("{}")
    engine = VllmEngine(
        tmp_path,
        EngineConfig(),
        vocabulary=Vocabulary([b"a"]),
        max_model_tokens=64,
        stop_token_ids=[0],
        log_path=tmp_path / "engine.log",
    )
    environment = dict(os.environ)
    with pytest.raises(EngineError, match="did not start"):
        await engine.start()
    await engine.close()
    assert {name: value for name, value in os.environ.items() if environment.get(name) != value}.keys() <= {
        "VLLM_WORKER_MULTIPROC_METHOD"
    }


def test_engine_processes_end_with_a_controller_that_is_killed(tiny_model_directory: Path, tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from conftest import make_engine\n"
        "async def main():\n"
        "    engine = make_engine(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "    await engine.start()\n"
        "    print(*(process.pid for process in engine.processes), flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(main())\n"
    )
    (tmp_path / "controller.py").write_text(script)
    command = [sys.executable, str(tmp_path / "controller.py"), str(tiny_model_directory), str(tmp_path / "engine.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as controller:
        assert controller.stdout is not None
        line = controller.stdout.readline()
        controller.kill()
        _, errors = controller.communicate()
    pids = [int(pid) for pid in line.split()]
    assert pids, errors
    deadline = time.monotonic() + 60
    while not all(has_ended(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
