"""The one entry point of all commands: parts start in order, every started part is closed, and errors are reported."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import torl
from chat_models import ChatModel
from torl.base.errors import ConfigError, DataError, EngineError, RecordError, RewardError, SandboxError
from torl.base.options import Choice, Section
from torl.base.paths import resolve_path
from torl.base.types import Grade, Group, Outcome, Problem, SampledTurn, TurnRequest
from torl.components.engine import Engine, EngineOptions, EngineSetup
from torl.components.environments import Environment, EnvironmentSession, ToolSchema
from torl.components.tools import ShuffledTool
from torl.recipes.torl import ToRLFormat
from torl.rollout.model_directory import ModelDirectory, cap_to_context, context_window, require_fitting
from torl.rollout.startup import Components, open_rollouts
from torl.run.config import EvaluateConfig, EvaluationConfig, ModelRunConfig, PromptConfig, RolloutConfig, TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.display.console import Console

BASE_MODEL = "torl:demo/base_model"
ONE = {"name": f"{__name__}:Part"}
events: list[str] = []
failing: set[str] = set()


def happened(event: str, error: Exception | None = None) -> None:
    events.append(event)
    if error is not None and event in failing:
        raise error


class Part(torl.Tool):
    """A tool that notes what is done with it."""

    description = "Nothing."
    parameters: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, number: int = 0) -> None:
        self.number = number

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        raise NotImplementedError

    async def start(self, context: torl.RunContext) -> None:
        happened(f"start tool {self.number}", SandboxError("no tool"))

    async def close(self) -> None:
        happened(f"close tool {self.number}")


class NotedOptions(EngineOptions):
    """Options of `NotedEngine`."""

    word: str = ""


class NotedEngine(Engine):
    """An engine that notes what is done with it."""

    def __init__(self, setup: EngineSetup, options: NotedOptions) -> None:
        self.setup, self.options = setup, options

    async def start(self) -> None:
        happened("start engine", EngineError("no engine"))

    async def sample(self, request: TurnRequest, on_block: Any = None) -> SampledTurn:
        raise AssertionError("unreachable")

    async def close(self) -> None:
        happened("close engine")


class NotedReward(torl.Reward):
    """A reward that notes what is done with it."""

    async def grade(self, group: Group) -> list[Grade]:
        return []

    async def start(self, context: torl.RunContext) -> None:
        happened("start reward", RewardError("no reward"))

    async def close(self) -> None:
        happened("close reward")


@pytest.fixture(autouse=True)
def nothing_happened() -> None:
    events.clear()
    failing.clear()


def shuffled(config: ModelRunConfig) -> Components:
    return replace(Components.from_config(config), shuffle_observations=True)


class AnyToolFormat(ToRLFormat):
    """A format that can call the tools of these tests."""

    tools = None


def configuration(**rollout: Any) -> ModelRunConfig:
    tools = {
        "one": {"name": f"{__name__}:Part", "number": 1},
        "two": {"name": f"{__name__}:Part", "number": 2, "retries": 7},
    }
    return ModelRunConfig.model_validate(
        {
            "model": {"path": BASE_MODEL},
            "data": {"max_prompt_tokens": 100},
            "rollout": {"tools": tools, "format": f"{__name__}:AnyToolFormat", "max_response_tokens": 60, **rollout},
            "engine": {"name": f"{__name__}:NotedEngine", "word": "own"},
            "reward": f"{__name__}:NotedReward",
        }
    )


@pytest.fixture(scope="module")
def model() -> ModelDirectory:
    return ModelDirectory.open(BASE_MODEL, {})


class Several(Part):
    """One section, several tools."""

    def provided_tools(self, name: str) -> dict[str, torl.Tool]:
        return {f"{name}.{number}": Part(number) for number in range(self.number)}


async def test_section_may_have_several_tools_with_unique_names(model: ModelDirectory, tmp_path: Path) -> None:
    many, part = {"name": f"{__name__}:Several", "number": 2, "retries": 5}, {"name": f"{__name__}:Part"}
    console = Console(io.StringIO())
    config = configuration(tools={"many": many, "one": part})
    async with open_rollouts(config, model, console, log_directory=tmp_path, components=shuffled(config)) as rollouts:
        tools = rollouts.player.tools
        assert list(tools) == ["many.0", "many.1", "one"]
        assert all(isinstance(tool, ShuffledTool) for tool in tools.values())
        assert [tool.tool.limits.retries for tool in tools.values()] == [5, 5, 3]  # type: ignore[attr-defined]
        assert [event for event in events if "tool" in event] == ["start tool 2", "start tool 0"]
    assert events[-2:] == ["close tool 0", "close tool 2"]
    config = configuration(tools={"many": many, "many.1": part})
    with pytest.raises(ConfigError, match=r"rollout\.tools\.many\.1 provides a second tool with the name 'many\.1'"):
        async with open_rollouts(config, model, console, log_directory=tmp_path):
            pass


async def test_parts_match_the_configuration(model: ModelDirectory, tmp_path: Path) -> None:
    config = configuration(max_tool_calls=3, temperature=0.5, max_concurrent_episodes=7)
    console = Console(io.StringIO())
    async with open_rollouts(config, model, console, log_directory=tmp_path, seed=11) as rollouts:
        player = rollouts.player
        assert isinstance(player.engine, NotedEngine)
        assert player.engine.options.word == "own"
        setup = player.engine.setup
        assert (setup.max_model_tokens, setup.seed, setup.log_path) == (160, 11, tmp_path / "engine.log")
        assert setup.stop_token_ids == (model.tokenizer.eos_token_id,)
        tools = list(player.tools.values())
        assert [tool.tool.number for tool in tools] == [1, 2]  # type: ignore[attr-defined]
        assert [(tool.name, tool.limits.retries) for tool in tools] == [("one", 3), ("two", 7)]  # type: ignore[attr-defined]
        settings = player.settings
        assert (settings.max_tool_calls, settings.temperature, settings.max_response_tokens) == (3, 0.5, 60)
        assert player.seed == 11
        assert isinstance(rollouts.reward, NotedReward)
        assert events[:2] == ["start tool 1", "start tool 2"]
        assert set(events[2:]) == {"start engine", "start reward"}
        events.clear()
    assert sorted(events) == ["close engine", "close reward", "close tool 1", "close tool 2"]
    assert events[-1] == "close tool 1"  # what started first ends last


@pytest.mark.parametrize(
    ("fails", "error", "closed"),
    [
        ("start tool 1", SandboxError, {"close tool 1"}),
        ("start tool 2", SandboxError, {"close tool 1", "close tool 2"}),
        ("start engine", EngineError, {"close tool 1", "close tool 2", "close engine", "close reward"}),
        ("start reward", RewardError, {"close tool 1", "close tool 2", "close engine", "close reward"}),
    ],
)
async def test_a_part_that_does_not_start_leaves_nothing_open(
    model: ModelDirectory, tmp_path: Path, fails: str, error: type[Exception], closed: set[str]
) -> None:
    failing.add(fails)
    with pytest.raises((error, ExceptionGroup)) as raised:
        async with open_rollouts(configuration(), model, Console(io.StringIO()), log_directory=tmp_path):
            raise AssertionError("unreachable")
    errors = raised.value.exceptions if isinstance(raised.value, ExceptionGroup) else [raised.value]
    assert [type(each) for each in errors] == [error]
    assert {event for event in events if event.startswith("close")} == closed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"tools": {"one": ONE, "two": {"function": "nowhere:f"}}},
            "nowhere cannot be imported",
        ),
        (
            {"tools": {"one": ONE, "two": {"mcp": "no_such_program"}}},
            "there is no such program",
        ),
        ({"format": "hermes", "environment": {"trl": "nowhere:E"}}, "nowhere cannot be imported"),
        ({"format": "hermes", "agent": {"command": "no_such_program"}}, "there is no such program"),
    ],
)
async def test_unbuildable_component_fails_before_anything_starts(
    model: ModelDirectory, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        async with open_rollouts(configuration(**changed), model, Console(io.StringIO()), log_directory=tmp_path):
            raise AssertionError("unreachable")
    assert events == []


async def test_all_is_closed_when_the_work_fails(model: ModelDirectory, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_rollouts(configuration(), model, Console(io.StringIO()), log_directory=tmp_path):
            raise ZeroDivisionError
    assert {event for event in events if event.startswith("close")} == {
        *("close engine", "close reward", "close tool 1", "close tool 2")
    }


async def test_every_tool_is_shuffled_in_the_control(model: ModelDirectory, tmp_path: Path) -> None:
    console = Console(io.StringIO())
    config = configuration()
    async with open_rollouts(config, model, console, log_directory=tmp_path, components=shuffled(config)) as rollouts:
        assert all(isinstance(tool, ShuffledTool) for tool in rollouts.player.tools.values())
    assert "close tool 2" in events


def test_set_with_an_invalid_file_name_is_refused_before_playing(tmp_path: Path) -> None:
    problems = "torl:demo/problems/heldout.jsonl"
    with pytest.raises(RecordError, match="evaluation set 'my set': use letters"):
        torl.evaluate(BASE_MODEL, problems, name="my set", output=tmp_path, engine=f"{__name__}:NotedEngine")
    assert events == []


# --- the environment --------------------------------------------------------------------------------------------


class Place(Environment):
    """An environment that notes what is done with it; its tool is called as the options say."""

    def __init__(self, tool: str = "look") -> None:
        self.tool = tool

    @property
    def tools(self) -> dict[str, ToolSchema]:
        return {self.tool: ToolSchema("Look.", {"type": "object"})}

    def session(self, problem: Problem, seed: int) -> EnvironmentSession:
        raise NotImplementedError

    async def start(self, context: torl.RunContext) -> None:
        happened("start environment", SandboxError("no environment"))

    async def close(self) -> None:
        happened("close environment")


def with_environment(**environment: Any) -> tuple[ModelRunConfig, ModelDirectory]:
    config = configuration(format="hermes", environment={"name": f"{__name__}:Place", **environment})
    config = config.model_copy(update={"data": PromptConfig.model_validate({"template": "chat"})})
    tokenizer = ChatModel.of("hermes").tokenizer
    return config, ModelDirectory(resolve_path(BASE_MODEL), tokenizer, config.rollout.tools, config.rollout.environment)


async def test_environment_starts_after_the_tools_and_adds_its_own(tmp_path: Path) -> None:
    config, model = with_environment()
    config = config.model_copy(update={"rollout": config.rollout.model_copy(update={"max_turns": 5})})
    console = Console(io.StringIO())
    async with open_rollouts(config, model, console, log_directory=tmp_path) as rollouts:
        player = rollouts.player
        assert events[:3] == ["start tool 1", "start tool 2", "start environment"]
        assert player.environment is not None
        assert list(player.environment.bounded.tools) == ["look"]
        assert player.settings.max_turns == 5
        names = [schema["function"]["name"] for schema in player.environment.tools]
        assert names == ["one", "two", "look"]
        assert player.environment.max_prompt_tokens == config.data.max_prompt_tokens
    assert events.index("close environment") < events.index("close tool 2")


class Asked(Part):
    """A tool of a server, say, that has to be asked what it offers."""

    def provided_tools(self, name: str) -> dict[str, torl.Tool]:
        happened(f"asked {name}")
        return {name: self}


async def test_tool_schema_is_read_for_prompts_and_for_runs(tmp_path: Path) -> None:
    """A server may take its time; an environment that begins conversations asks none again."""
    config, _ = with_environment()
    tools = RolloutConfig.model_validate({"tools": {"slow": {"name": f"{__name__}:Asked"}}}).tools
    config = config.model_copy(update={"rollout": config.rollout.model_copy(update={"tools": tools})})
    model = ModelDirectory(
        resolve_path(BASE_MODEL), ChatModel.of("hermes").tokenizer, tools, config.rollout.environment
    )
    assert model.tool_schemas() is model.tool_schemas()
    async with open_rollouts(config, model, Console(io.StringIO()), log_directory=tmp_path) as rollouts:
        environment = rollouts.player.environment
        assert environment is not None
        assert environment.tools == model.tool_schemas()
    assert events.count("asked slow") == 2


async def test_tool_name_unsupported_by_the_format_is_refused(tmp_path: Path) -> None:
    environment = {"name": f"{__name__}:Place", "tool": "two words"}
    config = configuration(format="kimi", environment=environment)
    config = config.model_copy(update={"data": PromptConfig.model_validate({"template": "chat"})})
    model = ModelDirectory(resolve_path(BASE_MODEL), ChatModel.of("kimi").tokenizer, config.rollout.tools)
    with pytest.raises(ConfigError, match=r"rollout\.format = 'kimi' cannot call the tool 'two words'"):
        async with open_rollouts(config, model, Console(io.StringIO()), log_directory=tmp_path):
            raise AssertionError("unreachable")
    assert "start engine" not in events


class RunsProgram(Part):
    """A tool whose arguments are known when it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.parameters = {"type": "object", "properties": {"program": {"type": "string"}}}


async def test_tool_with_other_arguments_than_the_format_writes_is_refused(
    model: ModelDirectory, tmp_path: Path
) -> None:
    config = configuration(tools={"python": {"name": f"{__name__}:RunsProgram"}}, format="torl")
    message = (
        r"rollout\.format = 'torl' cannot call the tool 'python': a call has one argument, the string 'code', and the "
        r"tool has program \(string\); rename the tool"
    )
    with pytest.raises(ConfigError, match=message):
        async with open_rollouts(config, model, Console(io.StringIO()), log_directory=tmp_path):
            raise AssertionError("unreachable")
    assert events == ["start tool 0", "close tool 0"]


async def test_an_environment_that_does_not_start_or_has_a_tool_of_the_run_is_an_error(tmp_path: Path) -> None:
    config, model = with_environment()
    failing.add("start environment")
    with pytest.raises(SandboxError, match="no environment"):
        async with open_rollouts(config, model, Console(io.StringIO()), log_directory=tmp_path):
            raise AssertionError("unreachable")
    assert "close environment" in events
    config, model = with_environment(tool="two")
    with pytest.raises(ConfigError, match=r"rollout\.environment provides a second tool with the name 'two'"):
        async with open_rollouts(config, model, Console(io.StringIO()), log_directory=tmp_path):
            raise AssertionError("unreachable")
    config, model = with_environment()
    with pytest.raises(ConfigError, match=r"remove rollout\.environment"):
        async with open_rollouts(
            config, model, Console(io.StringIO()), log_directory=tmp_path, components=shuffled(config)
        ):
            raise AssertionError("unreachable")


# --- the model ----------------------------------------------------------------------------------------------------


def directory(tmp_path: Path, config: str | None, weights: bool = True) -> Path:
    if weights:
        (tmp_path / "model.safetensors").touch()
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    return tmp_path


@pytest.mark.parametrize(("window", "limit"), [(1000, 60), (160, 60), (159, 59), (101, 1), (None, 60)])
def test_responses_fit_into_the_context(tmp_path: Path, window: int | None, limit: int) -> None:
    config = {} if window is None else {"max_position_embeddings": window}
    fitting = cap_to_context(configuration(), directory(tmp_path, json.dumps(config)))
    assert fitting.rollout.max_response_tokens == limit
    assert {**configuration().model_dump(), "rollout": None} == {**fitting.model_dump(), "rollout": None}


def test_evaluations_fit_into_the_context(tmp_path: Path) -> None:
    model = directory(tmp_path, json.dumps({"max_position_embeddings": 500}))
    fitting = cap_to_context(training(**{"evaluation.rollout.max_response_tokens": 300}), model)
    assert (fitting.rollout.max_response_tokens, fitting.evaluation.rollout) == (100, {"max_response_tokens": 100})
    assert cap_to_context(training(), model).evaluation.rollout == {}


def test_lowered_limits_are_shown(tmp_path: Path) -> None:
    model = directory(tmp_path, json.dumps({"max_position_embeddings": 500}))
    shown = io.StringIO()
    cap_to_context(training(**{"evaluation.rollout.max_response_tokens": 300}), model, Console(shown))
    assert [line.partition(": /")[0] for line in shown.getvalue().splitlines()] == [
        "warning: rollout.max_response_tokens is lowered from 160 to 100",
        "warning: evaluation.rollout.max_response_tokens is lowered from 300 to 100",
    ]
    assert "has a context of 500 tokens, of which 400 are for the prompt" in shown.getvalue()
    shown.truncate(0)
    (model / "config.json").write_text("{}")
    cap_to_context(training(), model, Console(shown))
    assert not shown.getvalue()


def test_an_overridden_context_is_left_to_the_engine(tmp_path: Path) -> None:
    model = directory(tmp_path, json.dumps({"max_position_embeddings": 500}))
    longer = training(**{"engine.arguments": {"hf_overrides": {"max_position_embeddings": 1000}}})
    assert cap_to_context(longer, model) == longer


def training(**overrides: Any) -> TrainConfig:
    return load_config(TrainConfig, find_config("demo"), overrides)


@pytest.mark.parametrize(
    ("settings", "window"),
    [
        ({}, None),
        ({"max_position_embeddings": 1000}, 1000),
        ({"text_config": {"max_position_embeddings": 1000}}, 1000),
        ({"max_position_embeddings": 1000, "rope_scaling": {"type": "linear", "factor": 2.0}}, 2000),
        ({"max_position_embeddings": 1000, "rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, 1000),
        ({"max_position_embeddings": 1000, "rope_parameters": {"full": {"rope_type": "default"}}}, 1000),
    ],
)
def test_context_window_is_that_of_the_engine(tmp_path: Path, settings: dict[str, Any], window: int | None) -> None:
    assert context_window(directory(tmp_path, json.dumps(settings))) == window


@pytest.mark.parametrize(("text", "message"), [("[]", "must be an object"), ("{", "cannot be read")])
def test_damaged_configuration_of_a_model_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=f"config.json: {message}"):
        context_window(directory(tmp_path, text))


def test_training_with_longer_responses_than_the_context_is_refused(tmp_path: Path) -> None:
    model = directory(tmp_path, json.dumps({"max_position_embeddings": 560}))
    require_fitting(training(), model)  # prompts of 400 tokens and responses of 160
    with pytest.raises(ConfigError, match=r"rollout\.max_response_tokens = 161 .* context of 560 .* use at most 160"):
        require_fitting(training(**{"rollout.max_response_tokens": 161}), model)
    with pytest.raises(ConfigError, match=r"evaluation\.rollout\.max_response_tokens = 162 .* use at most 160"):
        require_fitting(training(**{"evaluation.rollout.max_response_tokens": 162}), model)
    longer = {"hf_overrides": {"max_position_embeddings": 1000}}
    require_fitting(training(**{"rollout.max_response_tokens": 161, "engine.arguments": longer}), model)


def test_adapters_of_unknown_layers_are_refused_without_loading_the_model(tmp_path: Path) -> None:
    shapes = {
        "model.embed_tokens.weight": [9, 4],
        "model.norm.weight": [4],
        "model.layers.0.attn.q_proj.weight": [4, 4],
    }
    header = json.dumps({name: {"dtype": "F32", "shape": shape} for name, shape in shapes.items()}).encode()
    model = directory(tmp_path, "{}")
    (model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)

    def targets(*names: str) -> TrainConfig:
        return training(**{"model.lora.rank": 8, "model.lora.target_modules": names})

    require_fitting(targets(), model)
    require_fitting(targets("q_proj", "attn.q_proj", "model.layers.0.attn.q_proj"), model)
    for unknown in ("nope", "proj", "norm"):
        with pytest.raises(ConfigError, match=f"has no layer '{unknown}'; its layers are: q_proj$"):
            require_fitting(targets("q_proj", unknown), model)
    require_fitting(training(**{"model.lora.target_modules": ["nope"]}), model)  # without adapters
    (model / "model.safetensors").write_bytes(b"\xff" * 9)
    require_fitting(targets("nope"), model)  # the learner reports the damaged file


def test_a_context_without_room_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="its context of 100 tokens has no room after 100 of prompt"):
        cap_to_context(configuration(), directory(tmp_path, '{"max_position_embeddings": 100}'))


@pytest.mark.parametrize("config", [None, "{"])
def test_unreadable_model_configuration_is_an_error(tmp_path: Path, config: str | None) -> None:
    with pytest.raises(DataError, match=r"config\.json: cannot be read"):
        cap_to_context(configuration(), directory(tmp_path, config))


def test_directory_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no weights \(\*\.safetensors\)"):
        ModelDirectory.open(str(directory(tmp_path, "{}", weights=False)), {})
    with pytest.raises(DataError, match="holds neither tokenizer"):
        ModelDirectory.open(str(directory(tmp_path, "{}")), {})
    with pytest.raises(DataError, match="no such file"):
        ModelDirectory.open(str(tmp_path / "absent"), {})
    assert ModelDirectory.open(BASE_MODEL, {}).path == resolve_path(BASE_MODEL)


def test_prompts_that_are_too_long_are_reported(model: ModelDirectory) -> None:
    config = configuration()
    problems = [torl.Problem("a", "x", "1"), torl.Problem("b", "x " * 500, "1"), torl.Problem("c", "y", "1")]
    choice = Choice("given", lambda: problems, Section())
    prompts = model.prompts(choice, config.data)
    reading = iter(prompts)
    assert next(reading).problem.id == "a"
    assert str(prompts) == "1 problem read so far"
    assert next(reading).problem.id == "c"
    assert not list(reading)
    assert str(prompts) == "2 problems, 1 too long and dropped"
    assert [prompt.problem.id for prompt in prompts] == ["a", "c"]


def test_evaluation_has_a_separate_prompt_limit(model: ModelDirectory) -> None:
    log = io.StringIO()
    problems = [torl.Problem(name, "x " * length, "1") for name, length in {"a": 1, "b": 150, "c": 500, "d": 1}.items()]
    choice = Choice("given", lambda: problems, Section())
    data = configuration().data

    def found(**settings: Any) -> tuple[list[str], list[str]]:
        problem_set = model.problem_set("held", choice, data, EvaluationConfig(**settings), Console(log))
        return [prompt.problem.id for prompt in problem_set.prompts], [*problem_set.too_long]

    assert found() == (["a", "d"], ["b", "c"])
    assert "held: 2 problems, 2 too long, which count as not solved" in log.getvalue()
    assert found(max_prompt_tokens=400) == (["a", "b", "d"], ["c"])
    assert found(max_problems=2) == (["a"], ["b"])


@pytest.mark.parametrize(("own", "longest"), [(None, 100), (40, 100), (400, 400)])
def test_the_engine_has_room_for_every_prompt(own: int | None, longest: int) -> None:
    """A run plays its training prompts as well; a command that evaluates plays only those of the evaluation."""
    tree = configuration().model_dump(exclude={"engine", "reward", "rollout"}) | {
        "evaluation": {"max_prompt_tokens": own}
    }
    tree["data"]["train"] = "x.jsonl"
    assert TrainConfig.model_validate(tree | {"run": {"directory": "x", "steps": 1}}).longest_prompt == longest
    tree["data"]["evaluation"] = {"problems": "x.jsonl"}
    assert EvaluateConfig.model_validate(tree).longest_prompt == (own or 100)
