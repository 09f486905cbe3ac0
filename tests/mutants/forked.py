"""Run pytest in a process that starts with the large libraries already imported.

Most of what the tests of one mistake take is the import of PyTorch, transformers and vLLM. A server imports them once,
and each process is a fork of it. It never imports torl, which the fork finds in the copy with the mistake.
"""

import multiprocessing
import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

IMPORTED = (
    "torch, transformers, vllm.v1.engine.async_llm, math_verify, tokenizers, pyarrow.parquet, "
    "pydantic, tomli_w, aiohttp, starlette.applications, pytest, hypothesis, xdist"
)
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(IMPORTED.split(", "))


class NotRunError(Exception):
    """The tests could not be run; the message is their output."""


def has_failing_test(words: list[str], tree: Path, max_seconds: float) -> bool:
    """Return whether a test fails, or does not end in time, for these arguments of pytest in a copy of the tree.

    Raises:
        NotRunError: pytest ended with another status than that of passed or failed tests.
    """
    with TemporaryDirectory(prefix="torl-mutant-") as scratch:
        output = Path(scratch, "output")
        process = _FORKS.Process(target=_run_pytest, args=(words, tree, output))
        process.start()
        process.join(max_seconds)
        if process.is_alive():
            assert process.pid is not None
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
            return True
        if process.exitcode not in (0, 1):
            text = output.read_text("utf-8", errors="replace") if output.exists() else ""
            raise NotRunError(f"pytest {' '.join(words)}: exit status {process.exitcode}\n{text[-4000:]}")
        return process.exitcode == 1


def _run_pytest(words: list[str], tree: Path, output: Path) -> None:
    os.setsid()  # a test that hangs is killed with the processes that it started
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    assert "torl" not in sys.modules
    os.chdir(tree)
    os.environ["PYTHONPATH"] = str(tree / "python")
    sys.path.insert(0, str(tree / "python"))
    sys.argv = ["pytest", *words]
    import pytest

    sys.exit(pytest.main(words))
