"""SandboxFusion's requests, run in the pool."""

from torl.apps.serve.fusion_answers import Json, cell_result, code_answer, fetched, notebook_answer
from torl.apps.serve.fusion_requests import RunCodeRequest, RunJupyterRequest
from torl.sandbox.notebook import Notebook
from torl.sandbox.options import CellOptions, RunOptions
from torl.sandbox.pool import SandboxPool
from torl.types import OutcomeStatus


async def run_code(pool: SandboxPool, request: RunCodeRequest) -> Json:
    """Run a program.

    Raises:
        SandboxError: the host is broken.
        ValueError: files that cannot be, too much input.
    """
    options: RunOptions = {"seed": request.seed, "stdin": request.stdin or "", "cpu_seconds": request.run_timeout}
    options.update({"files": request.files, "return_files": bool(request.fetch_files)})
    if request.memory_bytes is not None:
        options["memory_bytes"] = request.memory_bytes
    outcome = await pool.run_async(request.code, **options)
    return code_answer(outcome, fetched(request.fetch_files, outcome.files, request.files))


async def run_jupyter(pool: SandboxPool, request: RunJupyterRequest) -> Json:
    """Run the cells of a notebook. One that raises is followed by the next, as there; a time-out ends the notebook.

    Raises:
        SandboxError: the host is broken.
        ValueError: files that cannot be, too much input.
    """
    session = pool.session(seed=request.seed, cpu_seconds=request.total_timeout, memory_bytes=request.memory_bytes)
    notebook = Notebook(session)
    options: CellOptions = {"files": request.files, "return_files": bool(request.fetch_files)}
    if request.cell_timeout > 0:
        options["cpu_seconds"] = request.cell_timeout
    left: dict[str, bytes] = {}
    cells: list[Json] = []
    seconds = 0.0
    in_time = True
    for cell in request.cells:
        outcome = await notebook.run_async(cell, **options)
        options["files"] = {}  # they stay from cell to cell
        left.update(outcome.files)
        seconds += outcome.wall_seconds
        cells.append(cell_result(outcome))
        if outcome.status is OutcomeStatus.TIMEOUT:
            in_time = False
            break
    return notebook_answer(cells, seconds, fetched(request.fetch_files, left, request.files), in_time=in_time)
