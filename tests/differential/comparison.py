"""Runs the same programs natively and in the sandbox, and gives those that end differently."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from generation import Program
from native import NativePython, Observed
from torl_sandbox import Execution, OutcomeStatus, SandboxPool

AT_ONCE = 2000
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Difference:
    """A program that ends otherwise in the sandbox than on a CPython of this machine."""

    program: Program
    native: Observed
    guest: Observed
    native_version: tuple[int, ...]
    """The version of CPython: (3, 13)."""

    @property
    def code(self) -> str:
        """The program's source."""
        return self.program.code


def seen(execution: Execution) -> Observed:
    """The visible result of a run in the sandbox; the type of the error is the status if there was no exception."""
    if execution.status is OutcomeStatus.OK:
        return Observed(execution.stdout)
    if execution.status is OutcomeStatus.ERROR:
        return Observed(execution.stdout, execution.exception_type, execution.exception_line)
    return Observed(execution.stdout, str(execution.status), execution.exception_line)


def without_addresses(observed: Observed) -> Observed:
    """Two processes never have their objects in the same places."""
    line = observed.error_line and ADDRESS.sub(" at 0x", observed.error_line)
    return Observed(ADDRESS.sub(" at 0x", observed.stdout), observed.error_type, line)


def differences(programs: Sequence[Program], native: NativePython, pool: SandboxPool) -> Iterator[Difference]:
    """The programs among `programs` that end differently, in their order."""
    for start in range(0, len(programs), AT_ONCE):
        part = programs[start : start + AT_ONCE]
        codes = [program.code for program in part]
        here = native.run(codes)
        there = [seen(execution) for execution in pool.run_batch(codes)]
        for program, one, other in zip(part, here, there, strict=True):
            if without_addresses(one) == without_addresses(other):
                continue
            # Not the doing of a program before it in the same process?
            (one,) = native.run([program.code], alone=True)
            if without_addresses(one) != without_addresses(other):
                yield Difference(program, one, other, native.version)
