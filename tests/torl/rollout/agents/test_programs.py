"""Programs that play episodes: commands and functions, their failures, and the processes they leave."""

import asyncio
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openai
import pytest

from agent_programs import MODEL, agent_player, ask, begun, opened, played, turns, user
from builders import asked, play_all
from scripted_engine import ScriptedEngine
from torl.base.component import RunContext
from torl.base.errors import AgentProgramError, ConfigError, EngineError
from torl.base.types import Problem
from torl.components.agents import programs
from torl.components.agents.programs import CommandAgent, FunctionAgent


def program(tmp_path: Path, text: str) -> CommandAgent:
    """A program in Python without libraries, whose `ask(**body)` is a request."""
    head = """
import json, os, subprocess, sys, time, urllib.error, urllib.request
def ask(**body):
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]
question = sys.stdin.read()
first = [{"role": "user", "content": question}]
"""
    path = tmp_path / "agent.py"
    path.write_text(head + text)
    return CommandAgent(f"{shlex.quote(sys.executable)} -IS {shlex.quote(str(path))}")


async def test_command_output_is_the_answer(tmp_path: Path) -> None:
    agent = program(tmp_path, 'print(question, os.environ["TORL_PROBLEM_ID"], ask(messages=first)["content"])')
    trajectory = await played(agent_player(MODEL, turns("It is 4.<|im_end|>"), agent=agent))
    assert trajectory.answer == "? sum It is 4."


async def test_a_shell_script_with_curl_is_an_agent(tmp_path: Path) -> None:
    script = tmp_path / "agent.sh"
    script.write_text(
        """curl -sf "$OPENAI_BASE_URL/chat/completions" -H "Authorization: Bearer $OPENAI_API_KEY" """
        """-d "{\\"messages\\": [{\\"role\\": \\"user\\", \\"content\\": \\"$TORL_PROBLEM\\"}]}" """
        """| sed 's/.*"content": "\\([^"]*\\)".*/\\1/'\n"""
    )
    agent = CommandAgent(f"sh {shlex.quote(str(script))}")
    trajectory = await played(agent_player(MODEL, turns("It is 4.<|im_end|>"), agent=agent))
    assert trajectory.answer == "It is 4."


@pytest.mark.parametrize(
    ("text", "said", "counted"),
    [
        ('ask(messages=first); sys.exit("no idea")', "failed: exited with status 1: no idea", "crashed"),
        ('ask(messages=first); print("x" * 2_000_000)', "failed: stdout exceeds 1048576 bytes", "crashed"),
        ("print(1)", "ended without a turn of the model", "no_request"),
        ("ask(messages=first); time.sleep(1e6)", r"took more than 0.5 s \(timeout_seconds\)", "timed_out"),
    ],
)
async def test_failing_program_fails_its_episode_and_is_counted(
    tmp_path: Path, text: str, said: str, counted: str
) -> None:
    limits = {"timeout_seconds": 0.5} if counted == "timed_out" else {}
    player = agent_player(MODEL, turns("4<|im_end|>"), agent=program(tmp_path, text), limits=limits)
    with pytest.raises(AgentProgramError, match=said):
        await played(player)
    failures = {name: player.metrics()[f"agent/{name}"] for name in ("crashed", "timed_out", "no_request")}
    assert failures == dict.fromkeys(failures, 0) | {counted: 1}


async def test_last_line_of_stderr_is_the_error_and_the_end_of_it_is_in_the_log(tmp_path: Path) -> None:
    lines = '"\\n".join(f"line {number}" for number in range(2000))'
    agent = program(tmp_path, f"ask(messages=first); print({lines}, file=sys.stderr); int('four')")
    await agent.start(RunContext(directory=tmp_path))
    with pytest.raises(AgentProgramError) as raised:
        await played(agent_player(MODEL, turns("4<|im_end|>"), agent=agent))
    last = "ValueError: invalid literal for int() with base 10: 'four'"
    assert str(raised.value) == f"problem 'sum', sample 0: the agent program failed: exited with status 1: {last}"
    log = (tmp_path / "agent.log").read_text()
    head = log.splitlines()[0]
    end = "the program exited with status 1; the last 8,000 characters of its stderr:"
    assert head == f"--- problem 'sum': {end}"
    assert len(log) == len(head) + 1 + 8000 + 1
    assert "line 1999\nTraceback (most recent call last):" in log
    assert log.endswith(f"{last}\n")


async def test_stderr_of_a_program_that_timed_out_is_in_the_log(tmp_path: Path) -> None:
    agent = program(tmp_path, "ask(messages=first); print('waiting', file=sys.stderr, flush=True); time.sleep(1e6)")
    await agent.start(RunContext(directory=tmp_path))
    with pytest.raises(AgentProgramError, match="took more than"):
        await played(agent_player(MODEL, turns("4<|im_end|>"), agent=agent, limits={"timeout_seconds": 2.0}))
    assert (tmp_path / "agent.log").read_text() == "--- problem 'sum': the program was stopped; its stderr:\nwaiting\n"


async def test_log_of_failures_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_MAX_LOG_BYTES", 60)
    agent = program(tmp_path, "sys.exit('no idea')")
    await agent.start(RunContext(directory=tmp_path))
    for _ in range(3):
        with pytest.raises(AgentProgramError):
            await played(agent_player(MODEL, turns("4<|im_end|>"), agent=agent))
    line = "--- problem 'sum': the program exited with status 1"
    assert (tmp_path / "agent.log").read_text().splitlines() == [f"{line}; its stderr:", "no idea", line, line]


async def test_proxy_is_not_used_for_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # discard: no proxy listens there
    agent = program(tmp_path, 'ask(messages=first); print(os.environ["NO_PROXY"])')
    trajectory = await played(agent_player(MODEL, turns("4<|im_end|>"), agent=agent))
    assert trajectory.answer == "127.0.0.1,localhost"


@pytest.mark.parametrize(
    ("lower", "upper", "found"),
    [
        (None, None, ("127.0.0.1,localhost", "127.0.0.1,localhost")),
        ("a.org, localhost", None, ("a.org,localhost,127.0.0.1", "a.org,localhost,127.0.0.1")),
        ("a.org", "b.org", ("a.org,127.0.0.1,localhost", "b.org,127.0.0.1,localhost")),
        (None, "*", ("*", "*")),
        ("a.org,*", "", ("a.org,*,127.0.0.1,localhost", "a.org,*,127.0.0.1,localhost")),
    ],
)
def test_local_host_is_added_to_the_exceptions_of_proxies(
    lower: str | None, upper: str | None, found: tuple[str, str]
) -> None:
    given = {name: value for name, value in (("no_proxy", lower), ("NO_PROXY", upper)) if value is not None}
    changed = programs.without_local_proxy({"PATH": "/bin", **given})
    assert changed == {"PATH": "/bin", "no_proxy": found[0], "NO_PROXY": found[1]}


async def test_successful_program_logs_nothing(tmp_path: Path) -> None:
    agent = program(tmp_path, "ask(messages=first); print('fine', file=sys.stderr)")
    await agent.start(RunContext(directory=tmp_path))
    await played(agent_player(MODEL, turns("4<|im_end|>"), agent=agent))
    assert not (tmp_path / "agent.log").exists()


async def test_child_processes_end_with_the_program(tmp_path: Path) -> None:
    text = (
        f'ask(messages=first); print(subprocess.Popen([{sys.executable!r}, "-c", "import time; time.sleep(1e6)"]).pid)'
    )
    trajectory = await played(agent_player(MODEL, turns("4<|im_end|>"), agent=program(tmp_path, text)))
    status = Path(f"/proc/{trajectory.answer}/stat")
    # The process has exited, or waits for its reaper here; the kernel takes its time to kill.
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        await asyncio.sleep(0.01)


async def test_a_failure_may_count_as_no_answer(tmp_path: Path) -> None:
    limits = {"on_failure": "grade_empty"}
    agent = program(tmp_path, "ask(messages=first); sys.exit(3)")
    trajectory = await played(agent_player(MODEL, turns("4<|im_end|>"), agent=agent, limits=limits))
    assert trajectory.answer == ""
    assert len(trajectory.turns) == 1


async def test_a_host_that_breaks_is_not_the_programs_fault(tmp_path: Path) -> None:
    agent = program(tmp_path, "\ntry:\n    ask(messages=first)\nexcept urllib.error.HTTPError:\n    time.sleep(1e6)")
    player = agent_player(
        MODEL, turns("4<|im_end|>"), agent=agent, fail_on="0/sum/0/0", limits={"on_failure": "grade_empty"}
    )
    with pytest.raises(EngineError, match="the engine died"):
        await played(player)


async def test_late_request_is_refused_and_pending_one_cancelled() -> None:
    addresses: list[str] = []

    async def play(problem: Problem, url: str) -> str | None:
        async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
            await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "?"}])
        addresses.append(url)
        return "done"

    async with opened(agent_player(MODEL, turns("Yes.<|im_end|>"), play)) as player:
        player.slots.begin()
        await player.play(asked(), batch_id=0, sample=0)
        async with openai.AsyncOpenAI(base_url=addresses[0], api_key="any", max_retries=0) as client:
            with pytest.raises(openai.APIStatusError) as refused:
                await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "?"}])
        assert (refused.value.status_code, refused.value.code) == (410, "episode_ended")
        engine = player.engine
        assert isinstance(engine, ScriptedEngine)
        assert engine.open == 0


async def test_a_program_that_gives_up_its_request_gives_up_the_turn() -> None:
    async def play(problem: Problem, url: str) -> str | None:
        async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
            messages: list[Any] = [user("?")]
            given_up = asyncio.ensure_future(client.chat.completions.create(model="any", messages=messages))
            while not engine.open:
                await asyncio.sleep(0)
            given_up.cancel()
            while engine.open:
                await asyncio.sleep(0)
            await client.chat.completions.create(model="any", messages=messages)
        return "done"

    player = agent_player(MODEL, turns("and so on " * 400, "Yes.<|im_end|>"), play, window=10_000)
    engine = player.engine
    assert isinstance(engine, ScriptedEngine)
    trajectory = await played(player)
    assert [turn.text for turn in trajectory.turns] == ["Yes."]
    assert not trajectory.branches
    assert engine.ended == ["0/sum/0/0", "0/sum/0/1"]


async def test_a_defect_of_torls_own_is_not_the_programs_fault() -> None:
    async def play(problem: Problem, url: str) -> str | None:
        async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
            await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "?"}])
        return "done"

    def defect(name: str) -> Sequence[int]:
        raise LookupError(name)

    with pytest.raises(LookupError, match="0/sum/0/0"):
        await played(agent_player(MODEL, defect, play))


async def test_groups_are_played_by_programs_and_so_many_run_at_once() -> None:
    running = most = 0

    async def play(problem: Problem, url: str) -> str | None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
            await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "?"}])
        running -= 1
        return problem.id

    async with opened(agent_player(MODEL, turns("Yes.<|im_end|>"), play, limits={"max_concurrent": 3})) as player:
        groups = await play_all(player, [asked("a"), asked("b")], 0, 4)
    assert most <= 3
    assert {group.prompt.problem.id: [each.answer for each in group.trajectories] for group in groups} == {
        "a": ["a"] * 4,
        "b": ["b"] * 4,
    }
    assert player.slots.sampling == 0


async def test_the_time_in_which_a_program_waits_for_the_model_is_not_its_own() -> None:
    player = agent_player(MODEL, turns("Yes.<|im_end|>"))
    episode = begun(player)
    assert player.slots.sampling == 0
    request = asyncio.ensure_future(ask(episode, [user("?")]))
    await asyncio.sleep(0)
    assert player.slots.sampling == 1
    before = episode.program_seconds
    await asyncio.sleep(0)
    assert episode.program_seconds == before
    await request
    assert player.slots.sampling == 0
    before = episode.program_seconds
    while episode.program_seconds == before:
        await asyncio.sleep(0)
    episode.close()


@pytest.mark.parametrize("command", ["", "'", "no-such-program --at-all"])
def test_unstartable_command_fails_immediately(command: str) -> None:
    with pytest.raises(ConfigError, match="the agent's command"):
        CommandAgent(command)


def test_an_agent_function_is_a_coroutine_function() -> None:
    FunctionAgent("agent_programs:nothing")
    with pytest.raises(ConfigError, match="async def"):
        FunctionAgent("agent_programs:user")
    with pytest.raises(ConfigError, match="cannot be imported"):
        FunctionAgent("no_such_module:play")
