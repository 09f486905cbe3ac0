"""Fixtures of many folders: one tiny model and one running engine for the session, which takes some 20 s to start."""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

import rank_forks
import tiny_model
from engines import make_engine
from torl.base.types import OutcomeStatus, Problem, Prompt
from torl.components.engine import VllmEngine
from torl_sandbox import Execution

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from torl._core import Vocabulary
    from torl.components.text.tokenizer import PlainTextEncoder


@pytest.fixture(scope="session")
def tiny_model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a Qwen2 that calls Python now and then: see `tiny_model`. Do not write into it."""
    return tiny_model.build_tiny_model(tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture(scope="session")
def tokenizer(tiny_model_directory: Path) -> "PreTrainedTokenizerFast":
    """The tiny model's tokenizer."""
    from torl.components.text.tokenizer import load_tokenizer

    return load_tokenizer(tiny_model_directory)


@pytest.fixture(scope="session")
def vocabulary(tokenizer: "PreTrainedTokenizerFast") -> "Vocabulary":
    """The tiny model's vocabulary."""
    from torl.components.text.vocabulary import build_vocabulary

    return build_vocabulary(tokenizer)


@pytest.fixture(scope="session")
def encoder(tokenizer: "PreTrainedTokenizerFast", vocabulary: "Vocabulary") -> "PlainTextEncoder":
    """An encoder of observations for the tiny model."""
    from torl.components.text.tokenizer import PlainTextEncoder

    return PlainTextEncoder(tokenizer, vocabulary)


@pytest.fixture(scope="session")
def prompts(tokenizer: "PreTrainedTokenizerFast") -> list[Prompt]:
    """Sixteen problems that the tiny model knows the form of."""
    pairs = [(first, 3 * first % 37 + 2) for first in range(3, 19)]
    return [
        Prompt(
            Problem(f"product-{first}", tiny_model.prompt_text(first, second), str(first * second)),
            tuple(tokenizer.encode(tiny_model.prompt_text(first, second), add_special_tokens=False)),
        )
        for first, second in pairs
    ]


@pytest_asyncio.fixture(scope="session")
async def engine(tiny_model_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmEngine]:
    """The tiny model in a float32 engine. A test that gives it other weights puts the old ones back."""
    started = make_engine(tiny_model_directory, tmp_path_factory.mktemp("engine") / "engine.log")
    await started.start()
    yield started
    await started.close()


@pytest.fixture
def forked_ranks() -> Iterator[None]:
    """Learners of the test fork their ranks, which takes a tenth of the time."""
    with rank_forks.forked():
        yield


@pytest.fixture
def temporary_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A separate temporary directory, with a path short enough for sockets; nothing may be left in it."""
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)
        assert sorted(Path(directory).iterdir()) == []


class SubprocessInterpreter:
    """Runs code in a fresh `python -c`: a real interpreter for tests that are not about the sandbox.

    `running` counts the processes alive now.
    """

    def __init__(self, concurrency: int = 2) -> None:
        self.running = 0
        self.calls = 0
        self._slots = asyncio.Semaphore(concurrency)

    async def run_async(self, code: str, *, seed: int = 0) -> Execution:
        """See `torl_sandbox.Interpreter`."""
        self.calls += 1
        async with self._slots:
            start = time.perf_counter()
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            self.running += 1
            try:
                stdout, stderr = (part.decode(errors="replace") for part in await process.communicate())
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
                self.running -= 1
        failed = process.returncode != 0
        line = stderr.strip().rsplit("\n", 1)[-1] if failed else None
        return Execution(
            status=OutcomeStatus.ERROR if failed else OutcomeStatus.OK,
            stdout=stdout,
            stderr=stderr,
            exception_type=line.split(":", 1)[0] if line else None,
            exception_line=line,
            traceback=stderr if failed else None,
            cpu_seconds=0.0,
            wall_seconds=time.perf_counter() - start,
            peak_memory_bytes=0,
        )


@pytest_asyncio.fixture(scope="session")
async def subprocess_interpreter() -> SubprocessInterpreter:
    """One interpreter for the session."""
    return SubprocessInterpreter()
