"""Hundreds of attacks, one for each test. Every program ends as foreseen, and the next run is right.

The attacks are in `attacks/`, by what they aim at: `# %% name: end`, then the program; the text before the first
belongs to all of a file. An end is a status and, where the exception matters, its type (`*`: any); several are joined by
"or"; after "|" comes what the program prints, with LIMIT the bytes of output a run may write. END in a program is the address where
its memory ends.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sandboxes import FRESH, KEPT, OVERSHOOT_SECONDS
from torl_sandbox import Execution, OutcomeStatus, SandboxPool

LIMIT = 1 << 20
CPU_SECONDS = 0.15
# How many times as long the others may take that shall end otherwise: filling all memory takes seconds on a busy machine.
PATIENCE = 80
# Of the sandboxes that attacks are sent to. A server with other limits would end some of them otherwise.
MEMORY_MIB, FILES_MIB = 320, 64
SERVER_OPTIONS = ("--workers", "1", "--memory-mib", str(MEMORY_MIB), "--files-mib", str(FILES_MIB))

BEGUN = "begun\n"
AFTER = "import sys, sympy\nprint(sorted(vars()), sum(range(5)), sympy.factorint(12))"


class Attack(NamedTuple):
    name: str
    ends: str
    printed: str
    code: str


def attacks() -> Iterator[Attack]:
    for file in sorted((Path(__file__).parent / "attacks").glob("*.py")):
        prelude, *parts = re.split(r"(?m)^# %% ", file.read_text(encoding="utf-8"))
        for part in parts:
            head, _, code = part.partition("\n")
            name, _, end = head.partition(": ")
            ends, _, printed = end.partition(" | ")
            output = str(eval(printed, {"LIMIT": LIMIT})) if printed else ""
            yield Attack(f"{file.stem}: {name}", ends, BEGUN + output, f"print('begun')\n{prelude}{code.rstrip()}\n")


ATTACKS = list(attacks())


def ended_as_foreseen(outcome: Execution, ends: str) -> bool:
    for end in ends.split(" or "):
        status, *exceptions = end.split()
        if outcome.status != status:
            continue
        if exceptions == ["*"] or status == OutcomeStatus.MEMORY or outcome.exception_type in (exceptions or [None]):
            return True
    return False


def open_pool(
    cpu_seconds: float, memory_mib: int = MEMORY_MIB, files_mib: int = FILES_MIB, **guest: Any
) -> SandboxPool:
    return SandboxPool(
        1,
        cpu_seconds=cpu_seconds,
        wall_seconds=60,
        memory_bytes=memory_mib << 20,
        files_bytes=files_mib << 20,
        **guest,
    )


@pytest.fixture(scope="module")
def kept() -> Iterator[dict[bool, SandboxPool]]:
    """Sandboxes, by whether the attack shall run out of time: the others shall not, however busy the machine is."""
    with open_pool(CPU_SECONDS, **KEPT) as hasty, open_pool(PATIENCE * CPU_SECONDS, **KEPT) as patient:
        yield {True: hasty, False: patient}
        # What runs out of time may have to be ended with its worker: the last resort.
        assert patient.stats()["workers_replaced"] == 0


@pytest.fixture(scope="module")
def small() -> Iterator[SandboxPool]:
    """A sandbox for attacks on the memory, which is full sooner: the interpreter leaves them 48 MiB."""
    with open_pool(PATIENCE * CPU_SECONDS, 224, **KEPT) as pool:
        yield pool
        assert pool.stats()["workers_replaced"] == 0


@pytest.fixture(scope="module")
def fresh() -> Iterator[SandboxPool]:
    with open_pool(PATIENCE * CPU_SECONDS, **FRESH) as pool:
        yield pool


@pytest.fixture(scope="module")
def memory_end(fresh: SandboxPool) -> int:
    """The address at which the memory of a run ends that asks for none."""
    return fresh.run("pass").peak_memory_bytes


@pytest.fixture(scope="module")
def expected_after(fresh: SandboxPool) -> str:
    return fresh.run(AFTER).stdout


def test_there_are_hundreds() -> None:
    assert len({attack.code for attack in ATTACKS}) == len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert len(ATTACKS) >= 300


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_ends_as_foreseen(
    kept: dict[bool, SandboxPool], small: SandboxPool, expected_after: str, memory_end: int, attack: Attack
) -> None:
    stopped = "timeout" in attack.ends
    pool = small if attack.ends == "memory" else kept[stopped]
    outcome = pool.run(attack.code.replace("END", str(memory_end)))
    assert ended_as_foreseen(outcome, attack.ends), outcome
    assert outcome.stdout == attack.printed
    if stopped:
        assert outcome.cpu_seconds < CPU_SECONDS + OVERSHOOT_SECONDS
    assert pool.run(AFTER).stdout == expected_after


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_ends_alike_in_a_new_guest(
    kept: dict[bool, SandboxPool], fresh: SandboxPool, memory_end: int, attack: Attack
) -> None:
    code = attack.code.replace("END", str(memory_end))
    one, other = kept[False].run(code), fresh.run(code)
    if OutcomeStatus.TIMEOUT not in (one.status, other.status):
        assert (one.status, one.stdout, one.stderr, one.traceback, one.peak_memory_bytes) == (
            other.status, other.stdout, other.stderr, other.traceback, other.peak_memory_bytes,
        )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_in_a_session_is_ended_and_harms_no_other(
    kept: dict[bool, SandboxPool], expected_after: str, memory_end: int, attack: Attack
) -> None:
    """Remains of its own session: a part whose time is over is interrupted, and ended if it continues."""
    pool = kept[True]
    session, other = pool.session(), pool.session()
    assert other.run("x = 1").ok
    outcome = session.run(attack.code.replace("END", str(memory_end)))
    assert outcome.cpu_seconds < CPU_SECONDS + OVERSHOOT_SECONDS
    session.run("print(1)")
    assert other.run("print(x, len(vars()))").stdout == "1 8\n"
    assert pool.run(AFTER).stdout == expected_after
