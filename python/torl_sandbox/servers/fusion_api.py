"""SandboxFusion's interface: requests, their runs in the pool, and responses.

Requests have the fields of `RunCodeRequest` and `RunJupyterRequest` in SandboxFusion's sandbox/server/sandbox_api.py
and sandbox/runners/types.py, and `seed`, which its server ignores. Unknown fields are ignored. Clients concatenate
stdout and stderr and format times, so texts and numbers of responses are never null (source: the same files and
runtime/jupyter/main.py).
"""

import base64
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from torl_sandbox.errors import OutcomeStatus
from torl_sandbox.execution import Execution
from torl_sandbox.notebook import Notebook, figure_text, is_picture
from torl_sandbox.options import MAXIMUM_MEMORY, MINIMUM_MEMORY, CellOptions, RunOptions
from torl_sandbox.pool import SandboxPool
from torl_sandbox.servers.admission import bounded_wall_time

Json = dict[str, Any]

FINISHED, TIME_LIMIT_EXCEEDED = "Finished", "TimeLimitExceeded"

_HOME = "/work"
_MAX_CELLS = 256  # of a notebook, which is one request
_MAX_RESULT_BYTES = 64 << 20  # of all cells: each may have the output and the files of a run
# Signals are negative return codes.
_SIGSEGV, _SIGXFSZ = -11, -25
_STOPPED = {
    OutcomeStatus.CRASH: (_SIGSEGV, "sandbox: the interpreter crashed\n"),
    OutcomeStatus.OUTPUT_LIMIT: (_SIGXFSZ, "sandbox: stopped, more output than allowed\n"),
}
_EXIT = re.compile(r"SystemExit: (-?\d+)")

# Files with this name are not written; several clients rely on it.
_IGNORED = "IGNORE_THIS_FILE"


def _decoded(files: Any) -> Any:
    """Decode files, without those that have no content, as SandboxFusion does."""
    if not isinstance(files, dict):
        return files
    return {
        # Encoders may break lines.
        name: base64.b64decode("".join(content.split()), validate=True) if isinstance(content, str) else content
        for name, content in files.items()
        if content is not None and _IGNORED not in str(name)
    }


def _in_home(path: str) -> str:
    """Return a path relative to the working directory of a run."""
    relative = posixpath.relpath(posixpath.join(_HOME, path), _HOME)
    if relative.split("/")[0] == "..":
        raise ValueError(f"{path!r} must be relative to the working directory, or below {_HOME}")
    return relative


def _python(language: str) -> str:
    if language != "python":
        raise ValueError(f"language = {language!r} must be 'python'")
    return language


Seconds = Annotated[float, Field(gt=0, lt=1e9)]
Files = Annotated[dict[str, bytes], BeforeValidator(_decoded)]
FilePath = Annotated[str, AfterValidator(lambda path: _in_home(path) and path)]


class _Request(BaseModel):
    """Fields of all requests."""

    memory_limit_MB: int = -1
    """Memory of the run in MiB, including the interpreter's own 177 MiB. At least 192; -1 is the server's limit."""
    files: Files = {}
    """Files by path relative to the working directory, in base64."""
    fetch_files: list[FilePath] = []
    """Paths of files to return, relative or below /work."""
    seed: int = 0
    """Random seed."""

    @property
    def memory_bytes(self) -> int | None:
        """Requested memory limit, if any."""
        return (
            min(max(self.memory_limit_MB << 20, MINIMUM_MEMORY), MAXIMUM_MEMORY) if self.memory_limit_MB > 0 else None
        )


class RunCodeRequest(_Request):
    """A request to run a program."""

    code: str
    language: Annotated[str, AfterValidator(_python)]
    run_timeout: Seconds = 10
    """CPU time in seconds. Wall time does not count, so a busy machine causes no timeouts."""
    stdin: str | None = None


class RunJupyterRequest(_Request):
    """A request to run the cells of a notebook, which share their state."""

    cells: Annotated[list[str], Field(max_length=_MAX_CELLS)]
    cell_timeout: float = 0
    """CPU time of each cell in seconds. 0 is the server's limit."""
    total_timeout: Seconds = 45
    """CPU time of all cells together in seconds."""


async def run_code(pool: SandboxPool, request: RunCodeRequest) -> Json:
    """Run a program.

    Raises:
        OverloadedError: The server is too busy.
        SandboxError: The host failed.
        ValueError: A file is invalid, or the input is too large.
    """
    options: RunOptions = {"seed": request.seed, "stdin": request.stdin or "", "cpu_seconds": request.run_timeout}
    options.update({"files": request.files, "return_files": bool(request.fetch_files)})
    if request.memory_bytes is not None:
        options["memory_bytes"] = request.memory_bytes
    async with bounded_wall_time(request.run_timeout):
        outcome = await pool.run_async(request.code, **options)
    return code_answer(outcome, fetched_files(request.fetch_files, outcome.files, request.files))


async def run_jupyter(pool: SandboxPool, request: RunJupyterRequest) -> Json:
    """Run the cells of a notebook. As in SandboxFusion, a timeout ends the notebook and other exceptions do not.

    Raises:
        OverloadedError: The server is too busy.
        SandboxError: The host failed.
        ValueError: A file is invalid, or the input or the results are too large.
    """
    session = pool.session(seed=request.seed, cpu_seconds=request.total_timeout, memory_bytes=request.memory_bytes)
    notebook = Notebook(session)
    options: CellOptions = {"files": request.files, "return_files": True}
    if request.cell_timeout > 0:
        options["cpu_seconds"] = request.cell_timeout
    wanted = {_in_home(name) for name in request.fetch_files}
    changed: dict[str, bytes] = {}
    cells: list[Json] = []
    seconds = 0.0
    size = 0
    in_time = True
    async with bounded_wall_time(request.total_timeout):
        for cell in request.cells:
            outcome = await notebook.run_async(cell, **options)
            options["files"] = {}  # files persist between cells
            changed.update((path, content) for path, content in outcome.files.items() if path in wanted)
            size += _result_bytes(outcome)
            if size > _MAX_RESULT_BYTES:
                raise ValueError(f"the results of the cells exceed {_MAX_RESULT_BYTES} bytes: print or show less")
            seconds += outcome.wall_seconds
            cells.append(cell_result(outcome))
            if outcome.status is OutcomeStatus.TIMEOUT:
                in_time = False
                break
    return notebook_answer(cells, seconds, fetched_files(request.fetch_files, changed, request.files), in_time=in_time)


def _result_bytes(outcome: Execution) -> int:
    """Return the size of a cell's result: its texts and the figures that it shows."""
    pictures = sum(len(content) for path, content in outcome.files.items() if is_picture(path))
    texts = (outcome.stdout, outcome.stderr, outcome.value or "", outcome.traceback or "")
    return sum(map(len, texts)) + pictures


def code_answer(outcome: Execution, files: Json) -> Json:
    """Build the response of `/run_code`."""
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
    """Describe a run as a process. A timeout has no return code."""
    if outcome.status is OutcomeStatus.TIMEOUT:
        return _command(TIME_LIMIT_EXCEEDED, outcome.wall_seconds, None, outcome.stdout, outcome.stderr)
    code, message = _STOPPED.get(outcome.status, (_exit_code(outcome), ""))
    return _command(FINISHED, outcome.wall_seconds, code, outcome.stdout, outcome.stderr + message)


def _command(status: str, seconds: float, code: int | None, stdout: str, stderr: str) -> Json:
    return {"status": status, "execution_time": seconds, "return_code": code, "stdout": stdout, "stderr": stderr}


def _exit_code(outcome: Execution) -> int:
    if outcome.ok:
        return 0
    number = _EXIT.fullmatch(outcome.exception_line or "")
    return int(number.group(1)) & 0xFF if number and outcome.exception_type == "SystemExit" else 1


def notebook_answer(cells: list[Json], seconds: float, files: Json, *, in_time: bool) -> Json:
    """Build the response of `/run_jupyter`. After a timeout, the interrupted cell is the last one."""
    return {
        "status": "Success" if in_time else "Failed",
        "message": "",
        "driver": _command(FINISHED if in_time else TIME_LIMIT_EXCEEDED, seconds, 0 if in_time else None, "", ""),
        "cells": cells,
        "executor_pod_name": None,
        "files": files,
    }


def cell_result(outcome: Execution) -> Json:
    """Describe a cell as in a notebook, with its figures, its value and, apart from stderr, its exception."""
    error: list[Json] = []
    stderr = outcome.stderr
    if outcome.status in _STOPPED:
        error = [{"ename": outcome.status.value, "evalue": _STOPPED[outcome.status][1].strip(), "traceback": []}]
    elif outcome.exception_type is not None:
        traceback = outcome.traceback or ""
        stderr = stderr.removesuffix(traceback if traceback.endswith("\n") else f"{traceback}\n")
        _, _, value = (outcome.exception_line or "").partition(": ")
        error = [{"ename": outcome.exception_type, "evalue": value, "traceback": traceback.splitlines()}]
    display = [
        {"text/plain": figure_text(content), "image/png": base64.b64encode(content).decode()}
        for path, content in outcome.files.items()
        if is_picture(path)
    ]
    if outcome.value is not None:
        display.append({"text/plain": outcome.value})
    return {"stdout": outcome.stdout, "stderr": stderr, "display": display, "error": error}


def fetched_files(names: Iterable[str], changed: Mapping[str, bytes], initial: Mapping[str, bytes]) -> Json:
    """Return the requested files that exist, in base64.

    Args:
        names: Requested paths, relative or below /work.
        changed: Files that the run created or changed.
        initial: Files before the run.
    """
    found: Json = {}
    for name in names:
        path = _in_home(name)
        content = changed.get(path, initial.get(path))
        if content is not None:
            found[name] = base64.b64encode(content).decode()
    return found


def sandbox_error(reason: str) -> Json:
    """Build the response to any request after a failure of the host, which clients do not count as an outcome."""
    return {"status": "SandboxError", "message": reason, "files": {}}
