"""The attacks on the sandbox, through the OpenEnv server: each ends as in a local pool; the next run is right."""

from collections.abc import Iterator
from typing import Any

import pytest
from openenv.core.generic_client import GenericEnvClient

from sandboxes import KEPT
from serving import Server, run_server
from test_sandbox_attacks import AFTER, ATTACKS, CPU_SECONDS, PATIENCE, SERVER_OPTIONS, Attack, open_pool
from torl_sandbox import Execution, OutcomeStatus, SandboxPool
from torl_sandbox.servers.fusion_api import command_result

pytestmark = pytest.mark.slow

TIMED_OUT = 124


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with open_pool(PATIENCE * CPU_SECONDS, **KEPT) as pool:
        yield pool


@pytest.fixture(scope="module")
def memory_end(pool: SandboxPool) -> int:
    return pool.run("pass").peak_memory_bytes


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[bool, Server]]:
    """Servers, by whether attacks on them shall run out of time."""
    with (
        run_server(*SERVER_OPTIONS, "--cpu-seconds", str(CPU_SECONDS), command="openenv") as hasty,
        run_server(*SERVER_OPTIONS, "--cpu-seconds", str(PATIENCE * CPU_SECONDS), command="openenv") as patient,
    ):
        yield {True: hasty, False: patient}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_attack_has_the_same_outcome_through_openenv(
    servers: dict[bool, Server], pool: SandboxPool, memory_end: int, attack: Attack
) -> None:
    code = attack.code.replace("END", str(memory_end))
    seconds = CPU_SECONDS if "timeout" in attack.ends else PATIENCE * CPU_SECONDS
    own = pool.session().run(code, value=True, cpu_seconds=seconds)
    server = servers["timeout" in attack.ends]
    async with GenericEnvClient(base_url=server.url) as client:
        result = await client.step({"code": code})
        await client.reset()
        after = await client.step({"code": AFTER})
    assert visible(result.observation) == visible_in_pool(own)
    assert after.observation["stdout"] == pool.session().run(AFTER).stdout


def visible(observation: dict[str, Any]) -> tuple[Any, ...]:
    """The whole output; after a timeout, the output is as much as there was time for."""
    code = observation["exit_code"]
    return (code,) if code == TIMED_OUT else (code, observation["stdout"], observation["stderr"])


def visible_in_pool(own: Execution) -> tuple[Any, ...]:
    if own.status is OutcomeStatus.TIMEOUT:
        return (TIMED_OUT,)
    result = command_result(own)
    value = "" if own.value is None else f"{own.value}\n"
    return result["return_code"], result["stdout"] + value, result["stderr"]
