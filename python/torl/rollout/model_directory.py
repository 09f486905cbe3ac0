"""A model on disk, its prompts, and its context window."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from torl.base.errors import ConfigError, DataError
from torl.base.inputs import open_file, parse_json, read_file, reason
from torl.base.options import Section
from torl.components.engine import EngineOptions
from torl.components.environments import ToolSchema, make_environment
from torl.components.hub import resolve_model
from torl.components.text.prompt_encoder import ToolSchemas
from torl.components.text.prompts import EncodedPrompts, PromptStream, encode_prompts
from torl.components.text.sources import SourceDigest, UnreadFields
from torl.components.text.tokenizer import load_tokenizer, stop_token_ids
from torl.components.tools import BaseTool, make_tool
from torl.run.config import EvaluationConfig, LearningConfig, ModelRunConfig, ProblemChoice, PromptConfig
from torl.run.config.choices import EnvironmentChoice, ToolChoice
from torl.run.display.console import Console

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_Config = TypeVar("_Config", bound=ModelRunConfig)


@dataclass(frozen=True)
class ModelDirectory:
    """A model on disk, with the tools that its chat template describes."""

    path: Path
    tokenizer: "PreTrainedTokenizerFast"
    tools: Mapping[str, ToolChoice]
    environment: EnvironmentChoice | None = None
    """Environment whose tools the chat template describes as well."""

    @classmethod
    def open(
        cls, path: str, tools: Mapping[str, ToolChoice], environment: EnvironmentChoice | None = None
    ) -> "ModelDirectory":
        """Find the directory and load its tokenizer. Raises `DataError` if the model is incomplete."""
        located = resolve_model(path)
        require_weights(located)
        return cls(located, load_tokenizer(located), tools, environment)

    def prompts(self, problems: ProblemChoice, config: PromptConfig) -> PromptStream:
        """The prompts of a problem set, without prompts over `config.max_prompt_tokens`.

        Iterating raises `DataError` if the problems cannot be read or all prompts are too long.
        """
        template = config.template.bind()
        return PromptStream(problems.bind(), self.tokenizer, template, config.max_prompt_tokens, self.tool_schemas)

    def problem_set(
        self, name: str, problems: ProblemChoice, config: PromptConfig, evaluation: EvaluationConfig, console: Console
    ) -> EncodedPrompts:
        """The problems of an evaluation, including problems with too long prompts. The console shows their numbers.

        Raises:
            DataError: The problems cannot be read, or all prompts are too long.
        """
        source = SourceDigest()
        first = islice(source.problems(problems.bind()()), evaluation.max_problems)
        template = config.template.bind()
        max_tokens = evaluation.longest_prompt(config)
        encoded = encode_prompts(first, self.tokenizer, template, max_tokens, self.tool_schemas)
        skipped = f", {len(encoded.too_long)} too long, which count as not solved" if encoded.too_long else ""
        count = len(encoded.prompts)
        console.line(f"{name}: {count} problem{'s' * (count != 1)}{skipped}")
        report_metadata(name, encoded.fields, console)
        return replace(encoded, source=source.entry())

    def tool_schemas(self) -> ToolSchemas:
        """The schemas of all tools, including the environment's. A tool server is queried only once.

        The tools are not started.
        """
        return self._tool_schemas

    @cached_property
    def _tool_schemas(self) -> ToolSchemas:
        toolsets: list[Mapping[str, BaseTool | ToolSchema]] = [
            make_tool(section, choice).provided_tools(section) for section, choice in self.tools.items()
        ]
        if self.environment is not None:
            toolsets.append(make_environment(self.environment).tools)
        return schemas(toolsets)


def report_metadata(name: str, fields: UnreadFields, console: Console) -> None:
    """Show the fields of the problems of a set that its prompts do not have."""
    if fields:
        console.line(f"{name}: {fields} (metadata, which a reward, a tool or an environment may read)")


def schemas(toolsets: Iterable[Mapping[str, BaseTool | ToolSchema]]) -> ToolSchemas:
    """The schemas of tools, as chat templates expect them."""
    functions = [
        {"name": name, "description": tool.description, "parameters": dict(tool.parameters)}
        for tools in toolsets
        for name, tool in tools.items()
    ]
    return [{"type": "function", "function": function} for function in functions]


def require_weights(model: Path) -> None:
    """Raise `DataError` for a directory without weights, before the engine starts."""
    if model.is_dir() and not any(model.glob("*.safetensors")) and not any(model.glob("*.bin")):
        raise DataError(f"{model}: holds no weights (*.safetensors)")


def stop_tokens_of(config: ModelRunConfig) -> list[int]:
    """Return the tokens that end a response in a run: the model's, and those of the run's format.

    Raises:
        DataError: The model is unavailable, or names no such token.
    """
    path = resolve_model(config.model.path)
    return stop_token_ids(path, load_tokenizer(path), config.rollout.format.make().end_tokens)


def require_same_vocabulary(model: ModelDirectory, other: str, setting: str) -> None:
    """Check that another model knows every token of a model under the same id.

    Raises:
        ConfigError: A token is missing or has another id.
        DataError: The other model has no tokenizer or no weights.
    """
    path = resolve_model(other)
    require_weights(path)
    known = load_tokenizer(path).get_vocab()
    wrong = [token for token, token_id in model.tokenizer.get_vocab().items() if known.get(token) != token_id]
    if wrong:
        raise ConfigError(
            f"{setting} = {other}: {len(wrong)} tokens of {model.path} are missing or have other ids, such as "
            f"{min(wrong)!r}; use a model with the same vocabulary"
        )


def require_fitting(config: LearningConfig, model: Path) -> None:
    """Check the settings that depend on the files of a model only, before anything is loaded.

    Raises:
        DataError: The model has no readable config.json.
        ConfigError: Responses are longer than the model's context window, or adapters name an unknown layer.
    """
    prompt, response, window = config.longest_prompt, config.longest_response, _engine_window(config, model)
    if config.plays_episodes and window is not None and prompt + response > window:
        section = "rollout" if response == config.rollout.max_response_tokens else "evaluation.rollout"
        setting = f"{section}.max_response_tokens"
        raise ConfigError(
            f"{setting} = {response} and prompts of {prompt} tokens exceed the context of {window} "
            f"tokens of {model} (max_position_embeddings); use at most {max(0, window - prompt)}"
        )
    targets = config.model.adapters.target_modules if config.model.adapters is not None else ()
    layers = _matrix_layers(model)
    missing = [each for each in targets if not any(f".{layer}".endswith(f".{each}") for layer in layers)]
    if missing and layers:
        known = sorted({layer.rpartition(".")[2] for layer in layers if "embed" not in layer})
        raise ConfigError(
            f"model.lora.target_modules: {model} has no layer {missing[0]!r}; its layers are: {', '.join(known)}"
        )


def context_window(model: Path) -> int | None:
    """Return the number of tokens that the positions of a model reach; None if its config.json does not contain it.

    Raises:
        DataError: The model has no readable config.json.
    """
    try:
        settings = parse_json(read_file(model / "config.json"))
    except (OSError, ValueError) as error:
        raise DataError(f"{model / 'config.json'}: cannot be read: {reason(error)}") from error
    if not isinstance(settings, dict):
        raise DataError(f"{model / 'config.json'}: must be an object, got {settings!r:.60}")
    settings = settings.get("text_config") or settings
    window = settings.get("max_position_embeddings")
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    if isinstance(window, int) and rope.get("rope_type", rope.get("type")) in ("linear", "dynamic"):
        return int(window * rope.get("factor", 1))
    return window if isinstance(window, int) else None


def _matrix_layers(model: Path) -> set[str]:
    """Return the names of the modules with a two-dimensional weight, from the headers of the safetensors files."""
    layers: set[str] = set()
    for path in model.glob("*.safetensors"):
        try:
            with open_file(path) as file:
                header = parse_json(file.read(int.from_bytes(file.read(8), "little")))
        except (OSError, ValueError, MemoryError, OverflowError):
            return set()  # the learner reports damaged files
        layers |= {
            name.removesuffix(".weight")
            for name, tensor in header.items()
            if name.endswith(".weight") and len(tensor["shape"]) == 2
        }
    return layers


def _engine_window(config: ModelRunConfig, model: Path) -> int | None:
    """Return the context window of a model; None if it is unknown, or if the engine overrides the model's config.json.

    The engine then checks the lengths itself.
    """
    window = context_window(model)
    options = config.engine.options
    return None if isinstance(options, EngineOptions) and options.overrides_model else window


def cap_to_context(config: _Config, model: Path, console: Console | None = None) -> _Config:
    """Lower the response limits of a configuration to the model's context window.

    Args:
        config: The configuration.
        model: Directory of the model.
        console: Console for a warning about each limit that is lowered.

    Raises:
        DataError: The model has no readable config.json.
        ConfigError: The prompts alone fill the context window.
    """
    prompt, window = config.longest_prompt, _engine_window(config, model)
    response = max(config.longest_response, config.rollout.max_response_tokens)
    if window is None or prompt + response <= window:
        return config
    if window <= prompt:
        raise ConfigError(f"{model}: its context of {window} tokens has no room after {prompt} of prompt")
    limit, rollout = {"max_response_tokens": window - prompt}, config.rollout
    capped: dict[str, Section] = {"rollout": rollout.model_copy(update=limit)}
    lowered = {"rollout": rollout.max_response_tokens}
    if (evaluation := getattr(config, "evaluation", None)) is not None:
        lowered["evaluation.rollout"] = evaluation.rollout.get("max_response_tokens", 0)
        capped["evaluation"] = evaluation.model_copy(update={"rollout": {**evaluation.rollout, **limit}})
    lowered = {name: tokens for name, tokens in lowered.items() if tokens > window - prompt}
    for name, tokens in lowered.items():
        if console is not None:
            console.warning(
                f"{name}.max_response_tokens is lowered from {tokens} to {window - prompt}: {model} has a context of "
                f"{window} tokens, of which {prompt} are for the prompt"
            )
    return config.model_copy(update={name.partition(".")[0]: capped[name.partition(".")[0]] for name in lowered})
