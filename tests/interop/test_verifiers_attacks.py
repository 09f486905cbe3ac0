"""The attacks on the sandbox through the toolset for verifiers, and rollouts that are begun and forgotten."""

from collections.abc import Iterator

import pytest

from sandboxes import KEPT
from test_sandbox_attacks import AFTER, ATTACKS, CPU_SECONDS, MEMORY_MIB, PATIENCE, Attack, open_pool
from torl_sandbox import OutcomeStatus, SandboxPool
from torl_sandbox.execution import render_transcript
from torl_sandbox.servers.settings import PoolSettings
from verifiers_server import ToolServer, tool_server

SETTINGS = {"workers": 1, "memory_mib": MEMORY_MIB}


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with open_pool(PATIENCE * CPU_SECONDS, files_mib=PoolSettings().files_mib, **KEPT) as pool:
        yield pool


@pytest.fixture(scope="module")
def memory_end(pool: SandboxPool) -> int:
    return pool.run("pass").peak_memory_bytes


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, ToolServer]]:
    """Servers, by whether attacks on them shall run out of time."""
    hasty, patient = (tmp_path_factory.mktemp(name) for name in ("hasty", "patient"))
    with (
        tool_server(hasty, cpu_seconds=CPU_SECONDS, **SETTINGS) as soon,
        tool_server(patient, cpu_seconds=PATIENCE * CPU_SECONDS, **SETTINGS) as late,
    ):
        yield {True: soon, False: late}


async def test_a_call_answers_with_the_value_of_its_last_line_and_the_next_finds_its_state(
    servers: dict[bool, ToolServer],
) -> None:
    server = servers[False]
    assert await server.call("one", "x = 41") == "[no output]"
    assert await server.call("one", "print('printed')\nx + 1") == "printed\n42"
    assert "NameError" in await server.call("other", "x")


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_attack_has_the_same_outcome_through_the_toolset(
    servers: dict[bool, ToolServer], pool: SandboxPool, memory_end: int, attack: Attack
) -> None:
    code = attack.code.replace("END", str(memory_end))
    stopped = "timeout" in attack.ends
    own = pool.session().run(code, value=True, cpu_seconds=CPU_SECONDS if stopped else PATIENCE * CPU_SECONDS)
    reply = await servers[stopped].call(attack.name, code)
    if own.status is OutcomeStatus.TIMEOUT:  # the output before the timeout is as much as there was time for
        assert reply.endswith("[timeout]")
    else:
        assert reply == render_transcript(own)
    assert await servers[stopped].call(f"after {attack.name}", AFTER) == pool.run(AFTER).stdout.rstrip("\n")


@pytest.mark.slow
async def test_two_thousand_abandoned_rollouts_use_bounded_memory(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A fifth of the other servers: verifiers takes up to 0.2 s to connect and to keep the state of a rollout."""
    bounds = {"max_sessions": 50, "max_session_mib": 8, "workers": 2}
    before = 0.0
    with tool_server(tmp_path_factory.mktemp("bounded"), **bounds) as server:
        for number in range(2_500):
            if number == 500:
                before = server.resident_mb()
            assert await server.call(str(number), "x = list(range(1000))\nlen(x)") == "1000"
        assert server.resident_mb() < before + 40
