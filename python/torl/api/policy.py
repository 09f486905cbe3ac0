"""A model that keeps its engine, tools and reward running between calls."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

from torl.api.event_loop import BackgroundLoop
from torl.api.results import SampledGroups
from torl.base.errors import ConfigError, DataError
from torl.base.options import Choice, Seed
from torl.base.options import Section as OptionSection
from torl.base.runtime.processes.resources import ScratchDirectory
from torl.base.types import Problem, ScoredGroup
from torl.rollout.evaluation import Evaluation, evaluate_with
from torl.rollout.model_directory import ModelDirectory, cap_to_context
from torl.rollout.sampling import sample_with
from torl.rollout.startup import Rollouts, open_rollouts
from torl.run.config import EvaluateConfig, EvaluateModelConfig, ModelRunConfig, SampleConfig
from torl.run.config.explain import Layer
from torl.run.config.loading import extended_layers, validate_config
from torl.run.display.console import Console

Result = TypeVar("Result")
AnyConfig = TypeVar("AnyConfig", bound=ModelRunConfig)
Problems: TypeAlias = str | Path | Sequence[str | Problem]
"""A problem file or source, problems, or questions without answers (to which no response is correct)."""
Section: TypeAlias = Mapping[str, Any] | str | Path | Sequence[str | Path]
"""A section of a configuration, the name of a choice, or the configurations that `extends` names."""
Model: TypeAlias = str | Path | Mapping[str, Any]
"""A model directory, a name on the Hub, or a section `model`."""


class PolicyConfig(EvaluateModelConfig):
    """The configuration of a `Policy`, which samples and evaluates."""

    seed: Seed = 0
    """Random seed of the engine."""

    @property
    def longest_prompt(self) -> int:
        """The maximum length of a prompt that is played, in tokens."""
        return max(self.data.max_prompt_tokens, self.evaluation.longest_prompt(self.data))

    @property
    def longest_response(self) -> int:
        """The maximum length of a response that is played, in tokens."""
        return max(self.rollout.max_response_tokens, self.evaluation.longest_response(self.rollout))


class Policy:
    """A model with its engine, tools and reward, which start at the first call and run until `close`.

        with torl.Policy("torl:demo/base_model", extends="demo") as policy:
            groups = policy.sample(["What is 17 * 23?"], samples_per_problem=4)
            evaluation = policy.evaluate("torl:demo/problems/heldout.jsonl")

    Use it as a context manager. It works where an event loop is running, as in a notebook. Its keywords are the
    sections of a configuration, as in `rollout={"max_tool_calls": 2}, reward="mine:Reward"`, and `extends`, which names
    presets or files.
    """

    _caller = "torl.Policy"
    _keywords: tuple[str, ...] = ("model", "seed")

    def __init__(self, model: Model, *, seed: int = 0, **sections: Section) -> None:
        """Check the settings. The engine starts at the first call that needs it.

        Args:
            model: Directory of a Hugging Face causal language model, its name on the Hub, or a section `model`.
            seed: Random seed of the engine.
            sections: Sections of the configuration.

        Raises:
            ConfigError: A section or setting is unknown, or a value is invalid.
        """
        self._sections = {"model": dict(model) if isinstance(model, Mapping) else {"path": str(model)}, **sections}
        self.config = self._validate(PolicyConfig, seed=seed)
        """The resolved configuration."""
        self._loop: BackgroundLoop | None = None
        self._console = Console()
        self._model: ModelDirectory | None = None
        self._running: _RunningRollouts | None = None

    def sample(
        self,
        problems: Problems,
        *,
        samples_per_problem: int = 1,
        output: str | Path | None = None,
        seed: int = 0,
    ) -> SampledGroups:
        """Sample and grade trajectories.

        Args:
            problems: Problem file or source, problems, or questions.
            samples_per_problem: Number of trajectories per problem.
            output: File that trajectories are appended to and resumed from. Optional.
            seed: Random seed of the episodes.

        Returns:
            The groups, in the order of the problems.

        Raises:
            TorlError: The settings, the problems or the model are invalid, or a component fails.
        """
        with ScratchDirectory("torl-sample-") as scratch:
            settings = {
                "problems": _problem_choice(problems),
                "output": output or scratch / "trajectories.jsonl",
                "samples_per_problem": samples_per_problem,
                "seed": seed,
            }
            config = self._validate(SampleConfig, sample=settings)
            return SampledGroups(self._run(lambda: self._sample(config, resumable=output is not None)))

    def evaluate(
        self,
        problems: Problems,
        *,
        name: str | None = None,
        max_tool_calls: int | None = None,
        output: str | Path | None = None,
    ) -> Evaluation:
        """Measure the model on problems, greedily and by samples as the section `evaluation` configures.

        Args:
            problems: Problem file or source, or problems.
            name: Name of the problem set; the episodes' seeds derive from it.
            max_tool_calls: Maximum number of tool calls in an episode; 0 measures the model without tools. None uses
                `evaluation.rollout.max_tool_calls`.
            output: Directory for the trajectories. Optional.

        Raises:
            TorlError: The settings, the problems or the model are invalid, or a component fails.
        """
        prompts = self._sections.get("data", {})
        data = {
            **(prompts if isinstance(prompts, Mapping) else {}),
            "evaluation": {"problems": _problem_choice(problems)},
        }
        limit = {} if max_tool_calls is None else {"evaluation.rollout.max_tool_calls": max_tool_calls}
        config = self._validate(EvaluateConfig, limit, data=data)
        return self._run(lambda: self._evaluate(config, name, Path(output) if output else None))

    def close(self) -> None:
        """Stop the engine, the tools and the reward. May be called twice."""
        if self._loop is not None:
            try:
                if self._running is not None:
                    self._loop.call(self._running.close(), cancellable=False)
            finally:
                self._loop.close()
                self._console.close()
                self._loop = None

    def __enter__(self) -> Self:
        if self._loop is not None or self._running is not None:
            raise ConfigError("this policy was already entered: make another one")
        self._loop = BackgroundLoop()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._loop is None else "running" if self._running is not None else "not started"
        return f"<torl.Policy {self.config.model.path}: {state}>"

    def _validate(
        self, config_class: type[AnyConfig], overrides: Mapping[str, Any] | None = None, **sections: Section | int
    ) -> AnyConfig:
        tree = {**self._sections, **sections}
        layers = [*extended_layers(tree, self._caller), Layer(self._caller, tree)]
        return validate_config(config_class, layers, overrides, caller=self._caller, keywords=self._keywords)

    def _run(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        if self._loop is None:
            raise ConfigError("the policy is not running: use it in a with statement")
        return self._loop.call(work())

    async def _sample(self, config: SampleConfig, *, resumable: bool) -> list[ScoredGroup]:
        model, config = self._open(config)
        return await sample_with(self._rollouts, model, config, self._console, resumable=resumable)

    async def _evaluate(self, config: EvaluateConfig, name: str | None, output: Path | None) -> Evaluation:
        model, config = self._open(config)
        return await evaluate_with(self._rollouts, model, config, self._console, name, output)

    def _open(self, config: AnyConfig) -> tuple[ModelDirectory, AnyConfig]:
        rollout = config.rollout
        self._model = self._model or ModelDirectory.open(config.model.path, rollout.tools, rollout.environment)
        return self._model, cap_to_context(config, self._model.path)

    @asynccontextmanager
    async def _rollouts(self) -> AsyncIterator[Rollouts]:
        """Lend the running rollouts; the first call starts them."""
        assert self._model is not None  # opened by every call
        if self._running is None:
            config = cap_to_context(self.config, self._model.path, self._console)
            self._running = _RunningRollouts(config, self._model, self._console)
        try:
            yield await self._running.started()
        except BaseException:
            if self._running.failed:
                self._running = None
            raise


class _RunningRollouts:
    """Rollouts that one task opens and closes: some of their tools require the same task for both."""

    def __init__(self, config: PolicyConfig, model: ModelDirectory, console: Console) -> None:
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[Rollouts] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._host(config, model, console))

    @property
    def failed(self) -> bool:
        """Whether the rollouts did not start."""
        return self._task.done()

    async def started(self) -> Rollouts:
        """Return the rollouts once they have started."""
        ends: list[asyncio.Future[Any]] = [self._task, self._ready]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            await self._task
        return self._ready.result()

    async def close(self) -> None:
        self._closing.set()
        if not self._ready.done():
            self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def _host(self, config: PolicyConfig, model: ModelDirectory, console: Console) -> None:
        with ScratchDirectory("torl-policy-") as logs:
            async with open_rollouts(config, model, console, log_directory=logs, seed=config.seed) as rollouts:
                self._ready.set_result(rollouts)
                await self._closing.wait()


class _GivenProblems(OptionSection):
    """The option of problems passed from Python, which identifies them when an output is resumed."""

    sha256: str
    """Digest of the problems."""


def _problem_choice(problems: Problems) -> Any:
    """Return the value of a setting `problems`."""
    if isinstance(problems, str | Path):
        return str(problems)
    if not isinstance(problems, Sequence):
        raise DataError(f"problems must be a path or a list of str and torl.Problem, got {type(problems).__name__}")
    if not problems:
        raise DataError("there are no problems")
    for number, each in enumerate(problems):
        if not isinstance(each, str | Problem):
            raise DataError(f"problems[{number}] must be a question (str) or a torl.Problem, got {type(each).__name__}")
    listed = [
        Problem(f"problem-{number}", each, "?") if isinstance(each, str) else each
        for number, each in enumerate(problems)
    ]
    text = "\0".join(f"{problem.id}\1{problem.question}\1{problem.answer}" for problem in listed)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Choice("problems", lambda sha256: listed, _GivenProblems(sha256=digest))
