"""The environment for TRL, called as its trainer does: answers of the tool, attacks, and rollouts that never end."""

import os
from collections.abc import Iterator

import pytest

from sandboxes import KEPT
from serving import resident_mb
from test_sandbox_attacks import AFTER, ATTACKS, CPU_SECONDS, PATIENCE, Attack, open_pool
from torl.components.interop.trl import environment_factory
from torl_sandbox import OutcomeStatus, SandboxPool
from torl_sandbox.execution import render_transcript


@pytest.fixture(scope="module")
def pools() -> Iterator[dict[bool, SandboxPool]]:
    """Environments, by whether programs in them shall run out of time."""
    with open_pool(CPU_SECONDS, **KEPT) as hasty, open_pool(PATIENCE * CPU_SECONDS, **KEPT) as patient:
        yield {True: hasty, False: patient}


@pytest.fixture(scope="module")
def memory_end(pools: dict[bool, SandboxPool]) -> int:
    return pools[False].run("pass").peak_memory_bytes


async def test_call_returns_output_and_value_of_last_line(
    pools: dict[bool, SandboxPool],
) -> None:
    environment = environment_factory(pools[False])()
    assert await environment.python("x = 41") == "[no output]"
    assert await environment.python("print('printed')\nx + 1") == "printed\n42"
    assert await environment.python("1 / 0") == (
        'Traceback (most recent call last):\n  File "main_3.py", line 1, in <module>\n    1 / 0\n    ~~^~~\n'
        "ZeroDivisionError: division by zero"
    )


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_attack_has_the_same_outcome_through_trls_environment(
    pools: dict[bool, SandboxPool], memory_end: int, attack: Attack
) -> None:
    pool = pools["timeout" in attack.ends]
    code = attack.code.replace("END", str(memory_end))
    own = await pool.session().run_async(code, value=True)
    environment = environment_factory(pool)()
    reply = await environment.python(code)
    if own.status is OutcomeStatus.TIMEOUT:  # the output before the timeout is as much as there was time for
        assert reply.endswith("[timeout]")
    else:
        assert reply == render_transcript(own)
    environment.reset()
    assert await environment.python(AFTER) == pool.run(AFTER).stdout.rstrip("\n")


@pytest.mark.slow
async def test_ten_thousand_abandoned_rollouts_leave_no_memory(pools: dict[bool, SandboxPool]) -> None:
    make = environment_factory(pools[False])
    reused = make()
    before = 0.0
    for number in range(11_000):
        if number == 1000:
            before = resident_mb(os.getpid())
        environment = reused if number % 2 else make()
        environment.reset()
        assert await environment.python("x = list(range(1000))\nlen(x)") == "1000"
    assert resident_mb(os.getpid()) < before + 20
