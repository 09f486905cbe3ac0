"""The attacks on the sandbox, through each server: each ends as in a local pool, and the next run is right."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client

from sandboxes import KEPT
from serving import Server, run_server
from test_sandbox_attacks import AFTER, ATTACKS, CPU_SECONDS, PATIENCE, SERVER_OPTIONS, Attack, open_pool
from torl_sandbox import Execution, OutcomeStatus, SandboxPool
from torl_sandbox.servers.fusion_api import command_result

pytestmark = pytest.mark.slow

PATIENT = PATIENCE * CPU_SECONDS


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with open_pool(PATIENT, **KEPT) as pool:
        yield pool


@pytest.fixture(scope="module")
def memory_end(pool: SandboxPool) -> int:
    return pool.run("pass").peak_memory_bytes


@pytest.fixture(scope="module")
def http() -> Iterator[Server]:
    with run_server(*SERVER_OPTIONS, "--cpu-seconds", str(PATIENT)) as running:
        yield running


@pytest_asyncio.fixture(scope="module")
async def mcp() -> AsyncIterator[dict[bool, str]]:
    """The servers' addresses, by whether attacks on it shall run out of time."""
    with (
        run_server("--http", *SERVER_OPTIONS, "--cpu-seconds", str(CPU_SECONDS), command="mcp") as hasty,
        run_server("--http", *SERVER_OPTIONS, "--cpu-seconds", str(PATIENT), command="mcp") as patient,
    ):
        yield {True: hasty.url, False: patient.url}


def limit(attack: Attack) -> float:
    return CPU_SECONDS if "timeout" in attack.ends else PATIENT


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack_has_the_same_outcome_through_http(
    http: Server, pool: SandboxPool, memory_end: int, attack: Attack
) -> None:
    code = attack.code.replace("END", str(memory_end))
    own = command_result(pool.run(code, cpu_seconds=limit(attack)))
    served = http.run(code, run_timeout=limit(attack))["run_result"]
    assert shown(served) == shown(own)
    assert http.run(AFTER)["run_result"]["stdout"] == pool.run(AFTER).stdout


def shown(result: dict[str, Any]) -> dict[str, Any]:
    """The outcome without its time; the output before the timeout is as much as there was time for."""
    if result["status"] == "TimeLimitExceeded":
        return {"status": result["status"]}
    return {name: result[name] for name in ("status", "return_code", "stdout", "stderr")}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_attack_has_the_same_outcome_through_mcp(
    mcp: dict[bool, str], pool: SandboxPool, memory_end: int, attack: Attack
) -> None:
    code = attack.code.replace("END", str(memory_end))
    options: Any = {"value": True, "return_files": True, "cpu_seconds": limit(attack)}
    own = pool.run(code, **options)
    async with Client(mcp["timeout" in attack.ends]) as client:
        result = await client.call_tool("run_python", {"code": code})
        after = await client.call_tool("run_python", {"code": AFTER})
    assert visible(result.structured_content) == visible_in_pool(own)
    assert result.is_error is not own.ok
    assert after.structured_content["stdout"] == pool.run(AFTER, value=True).stdout


def visible(found: dict[str, Any]) -> dict[str, Any]:
    if found["status"] == OutcomeStatus.TIMEOUT:
        return {"status": found["status"]}
    return {name: found[name] for name in ("status", "stdout", "stderr", "value", "error", "files")}


def visible_in_pool(own: Execution) -> dict[str, Any]:
    files = {
        path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"): len(data)
        for path, data in own.files.items()
    }
    return visible(
        {"status": own.status, "stdout": own.stdout, "stderr": own.stderr, "value": own.value,
         "error": own.exception_line, "files": files}
    )  # fmt: skip
