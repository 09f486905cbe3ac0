"""torl's commands as Python calls, for scripts and notebooks.

Each takes the sections of a configuration as keywords: `rollout={"max_tool_calls": 2}, engine={"dtype": "float32"}`.
Each runs an event loop of its own in a thread, so that it works where one runs already, and shows its progress.
"""

import asyncio
import hashlib
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from torl.apps.audit.run import Audit, verify_run
from torl.config import EvaluateConfig, SampleConfig, TrainConfig
from torl.config.command_line import find_config, load_config, validate_config
from torl.errors import DataError
from torl.options import Choice, Section
from torl.report.console import Console
from torl.rollout import evaluation, sampling
from torl.runtime.processes.supervision import first_error
from torl.training import run as training_run
from torl.types import Problem, ScoredGroup

Result = TypeVar("Result")
Problems = str | Path | Sequence[str | Problem]
"""A problem file, problems, or questions alone (whose answers nobody knows: no response to them is right)."""

_SOURCE = "torl"


def sample(
    model: str | Path,
    problems: Problems,
    *,
    samples_per_problem: int = 1,
    output: str | Path | None = None,
    seed: int = 0,
    **sections: Mapping[str, Any],
) -> list[ScoredGroup]:
    """Sample trajectories of a model; the groups of the problems, in their order, with what each trajectory is worth.

    Args:
        model: directory of a Hugging Face causal language model.
        problems: a problem file, problems, or questions.
        samples_per_problem: trajectories for each problem.
        output: file to write them to as they end, and to resume from; none when unset.
        seed: of everything random.
        sections: of a configuration.

    Raises:
        TorlError: the settings, the problems, the model or a part are not as they should be.
    """
    with TemporaryDirectory(prefix="torl-sample-") as scratch:
        own = {
            "problems": _source(problems),
            "output": output or Path(scratch) / "trajectories.jsonl",
            "samples_per_problem": samples_per_problem,
            "seed": seed,
        }
        config = validate_config(SampleConfig, _tree(model, sections, sample=own), {}, source=f"{_SOURCE}.sample")
        return _run(lambda console: sampling.sample_to_file(config, console))


def evaluate(
    model: str | Path,
    problems: Problems,
    *,
    name: str | None = None,
    use_tools: bool = True,
    output: str | Path | None = None,
    **sections: Mapping[str, Any],
) -> evaluation.Evaluation:
    """Measure a model on problems: greedily, and by samples if the section `evaluation` asks for them.

    Args:
        model: directory of a Hugging Face causal language model.
        problems: a problem file, or problems.
        name: of the problem set; it chooses the seeds.
        use_tools: whether the model's tool calls are answered.
        output: directory for the trajectories.
        sections: of a configuration.

    Raises:
        TorlError: the settings, the problems, the model or a part are not as they should be.
    """
    own = {"problems": _source(problems), "use_tools": use_tools} | ({"output": output} if output else {})
    config = validate_config(EvaluateConfig, _tree(model, sections, evaluate=own), {}, source=f"{_SOURCE}.evaluate")
    return _run(lambda console: evaluation.evaluate_model(config, console, name))


def train(config: str | Path | TrainConfig, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Train, and return the run's summary: `train("demo", {"run.steps": 10})`.

    Args:
        config: a TOML file, the name of a preset, or a whole configuration.
        overrides: values by dotted names, on top of a file or preset.

    Raises:
        TorlError: what was wrong with the configuration, the data or a part; everything written so far is kept.
    """
    if not isinstance(config, TrainConfig):
        config = load_config(TrainConfig, find_config(config), overrides)
    whole = config
    return _run(lambda console: training_run.train(whole, console))


def verify(run: str | Path, *, logprob_samples: int = 64) -> Audit:
    """Audit a run from its own files.

    Args:
        run: directory of a run, finished or running.
        logprob_samples: trajectories of each policy version whose log-probabilities are computed again.

    Raises:
        TorlError: the run cannot be read, or the graders do not work.
    """
    return _run(lambda _: verify_run(Path(run), logprob_samples))


def _tree(model: str | Path, sections: Mapping[str, Mapping[str, Any]], **own: Any) -> dict[str, Any]:
    return {"model": {"path": str(model)}, **own, **{name: dict(section) for name, section in sections.items()}}


def _source(problems: Problems) -> Any:
    """What the configuration takes for problems."""
    if isinstance(problems, str | Path):
        return str(problems)
    if not problems:
        raise DataError("there are no problems")
    given = [
        Problem(f"problem-{number}", each, "?") if isinstance(each, str) else each
        for number, each in enumerate(problems)
    ]
    text = "\0".join(f"{problem.id}\1{problem.question}\1{problem.answer}" for problem in given)
    # An output is resumed with the problems it was begun with only: the name tells others apart.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Choice(f"given, SHA-256 {digest}", lambda: given, Section())


def _run(work: Callable[[Console], Coroutine[Any, Any, Result]]) -> Result:
    """The result of `work`, run in a thread of its own; Ctrl-C cancels it, and waits until its parts have ended."""
    done: list[Result] = []
    failed: list[BaseException] = []
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Result]]] = []

    async def main() -> None:
        with Console() as console:
            task = asyncio.ensure_future(work(console))
            running.append((asyncio.get_running_loop(), task))
            done.append(await task)

    def target() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=target, name="torl")
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        for loop, task in running:
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    if failed:
        raise first_error(failed[0])
    return done[0]
