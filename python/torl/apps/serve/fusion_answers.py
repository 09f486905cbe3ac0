"""Runs in the words of SandboxFusion: `RunCodeResponse`, `RunJupyterResponse` and what is in them.

Its clients concatenate stdout and stderr and format times: texts are never null here, and numbers are numbers. Source:
SandboxFusion, sandbox/server/sandbox_api.py, sandbox/runners/types.py and runtime/jupyter/main.py.
"""

import base64
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Any

from torl.sandbox.execution import Execution
from torl.types import OutcomeStatus

Json = dict[str, Any]

FINISHED, TIME_LIMIT_EXCEEDED = "Finished", "TimeLimitExceeded"

# Where a run starts.
_HOME = "/work"
# As the parent of a process sees it: a signal that ended it is a negative code.
_SIGSEGV, _SIGXFSZ = -11, -25
_STOPPED = {
    OutcomeStatus.CRASH: (_SIGSEGV, "sandbox: the interpreter crashed\n"),
    OutcomeStatus.OUTPUT_LIMIT: (_SIGXFSZ, "sandbox: stopped, more output than allowed\n"),
}
_EXIT = re.compile(r"SystemExit: (-?\d+)")


def code_answer(outcome: Execution, files: Json) -> Json:
    """What `/run_code` answers."""
    result = command_result(outcome)
    return {
        "status": "Success" if result["return_code"] == 0 else "Failed",
        "message": "",
        "compile_result": None,
        "run_result": result,
        "executor_pod_name": None,
        "files": files,
    }


def command_result(outcome: Execution) -> Json:
    """A run as that of a process. A time-out has no return code."""
    if outcome.status is OutcomeStatus.TIMEOUT:
        return _command(TIME_LIMIT_EXCEEDED, outcome.wall_seconds, None, outcome.stdout, outcome.stderr)
    code, said = _STOPPED.get(outcome.status, (_exit_code(outcome), ""))
    return _command(FINISHED, outcome.wall_seconds, code, outcome.stdout, outcome.stderr + said)


def _command(status: str, seconds: float, code: int | None, stdout: str, stderr: str) -> Json:
    return {"status": status, "execution_time": seconds, "return_code": code, "stdout": stdout, "stderr": stderr}


def _exit_code(outcome: Execution) -> int:
    if outcome.ok:
        return 0
    number = _EXIT.fullmatch(outcome.exception_line or "")
    return int(number.group(1)) & 0xFF if number and outcome.exception_type == "SystemExit" else 1


def notebook_answer(cells: list[Json], seconds: float, files: Json, *, in_time: bool) -> Json:
    """What `/run_jupyter` answers. After a time-out the cells are those that have run, the stopped one last."""
    return {
        "status": "Success" if in_time else "Failed",
        "message": "",
        "driver": _command(FINISHED if in_time else TIME_LIMIT_EXCEEDED, seconds, 0 if in_time else None, "", ""),
        "cells": cells,
        "executor_pod_name": None,
        "files": files,
    }


def cell_result(outcome: Execution) -> Json:
    """A cell as a notebook shows it: its value is displayed, its exception is no part of stderr."""
    error: list[Json] = []
    stderr = outcome.stderr
    if outcome.status in _STOPPED:
        error = [{"ename": outcome.status.value, "evalue": _STOPPED[outcome.status][1].strip(), "traceback": []}]
    elif outcome.exception_type is not None:
        traceback = outcome.traceback or ""
        stderr = stderr.removesuffix(traceback if traceback.endswith("\n") else f"{traceback}\n")
        _, _, value = (outcome.exception_line or "").partition(": ")
        error = [{"ename": outcome.exception_type, "evalue": value, "traceback": traceback.splitlines()}]
    display = [] if outcome.value is None else [{"text/plain": outcome.value}]
    return {"stdout": outcome.stdout, "stderr": stderr, "display": display, "error": error}


def fetched(asked: Iterable[str], left: Mapping[str, bytes], given: Mapping[str, bytes]) -> Json:
    """The files asked for, in base64, by the names they were asked for; those that are not there are left out.

    Args:
        asked: paths, relative or below /work.
        left: what the run made or changed.
        given: what it began with.
    """
    found: Json = {}
    for name in asked:
        path = posixpath.relpath(posixpath.join(_HOME, name), _HOME)
        content = left.get(path, given.get(path))
        if content is not None:
            found[name] = base64.b64encode(content).decode()
    return found


def sandbox_error(reason: str) -> Json:
    """The answer to any request when the host is broken: clients take it for no outcome."""
    return {"status": "SandboxError", "message": reason, "files": {}}
