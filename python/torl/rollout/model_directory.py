"""A model on disk: what is known of it before anything is started, and the prompts that it makes of problems."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from torl.config import EvaluationConfig, ModelRunConfig, ProblemChoice, PromptConfig
from torl.config.choices import EnvironmentChoice, ToolChoice
from torl.environments import ToolSchema, make_environment
from torl.errors import ConfigError, DataError
from torl.hub import resolve_model
from torl.report.console import Console
from torl.text.prompt_encoder import ToolSchemas
from torl.text.prompts import EncodedPrompts, PromptStream, encode_prompts
from torl.text.tokenizer import load_tokenizer
from torl.tools import BaseTool, make_tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_Config = TypeVar("_Config", bound=ModelRunConfig)


@dataclass(frozen=True)
class ModelDirectory:
    """A model on disk, with what is known of it before anything is started."""

    path: Path
    tokenizer: "PreTrainedTokenizerFast"
    tools: Mapping[str, ToolChoice]  # of the run, which a chat template tells the model of
    environment: EnvironmentChoice | None = None  # whose tools it is told of as well

    @classmethod
    def open(
        cls, path: str, tools: Mapping[str, ToolChoice], environment: EnvironmentChoice | None = None
    ) -> "ModelDirectory":
        """Find the directory and read its tokenizer; raises `DataError` if it holds no whole model."""
        located = resolve_model(path)
        require_weights(located)
        return cls(located, load_tokenizer(located), tools, environment)

    def prompts(self, problems: ProblemChoice, config: PromptConfig) -> PromptStream:
        """The prompts of a problem set; those over `config.max_prompt_tokens` are dropped.

        Reading them raises `DataError` if the problems cannot be read, or no prompt fits.
        """
        template = config.template.bind()
        return PromptStream(problems.bind(), self.tokenizer, template, config.max_prompt_tokens, self.tool_schemas)

    def problem_set(
        self, name: str, problems: ProblemChoice, config: PromptConfig, evaluation: EvaluationConfig, console: Console
    ) -> EncodedPrompts:
        """The problems to evaluate on, with those whose prompts are too long, said on the console.

        Raises:
            DataError: the problems cannot be read, or no prompt fits.
        """
        first = islice(problems.bind()(), evaluation.max_problems)
        template = config.template.bind()
        longest = evaluation.longest_prompt(config)
        encoded = encode_prompts(first, self.tokenizer, template, longest, self.tool_schemas)
        unplayed = f", {len(encoded.too_long)} too long, which count as not solved" if encoded.too_long else ""
        console.line(f"{name}: {len(encoded.prompts)} problems{unplayed}")
        return encoded

    def tool_schemas(self) -> ToolSchemas:
        """What the model is told of all that the tools and the environment offer; they are not started for it.

        A server that has to be asked is asked once.
        """
        return self._tool_schemas

    @cached_property
    def _tool_schemas(self) -> ToolSchemas:
        offered: list[Mapping[str, BaseTool | ToolSchema]] = [
            make_tool(section, choice).provided_tools(section) for section, choice in self.tools.items()
        ]
        if self.environment is not None:
            offered.append(make_environment(self.environment).tools)
        return schemas(offered)


def schemas(offered: Iterable[Mapping[str, BaseTool | ToolSchema]]) -> ToolSchemas:
    """What a model is told of tools, by their names."""
    functions = [
        {"name": name, "description": tool.description, "parameters": dict(tool.parameters)}
        for tools in offered
        for name, tool in tools.items()
    ]
    return [{"type": "function", "function": function} for function in functions]


def require_weights(model: Path) -> None:
    """Raise `DataError` for a directory without weights: the engine would say so only when it has started."""
    if model.is_dir() and not any(model.glob("*.safetensors")) and not any(model.glob("*.bin")):
        raise DataError(f"{model}: holds no weights (*.safetensors)")


def cap_to_context(config: _Config, model: Path) -> _Config:
    """The configuration with a response limit that the model's context window has room for.

    Raises:
        DataError: the model has no readable config.json.
        ConfigError: there is no room at all.
    """
    prompt, response = config.longest_prompt, config.rollout.max_response_tokens
    try:
        window = json.loads((model / "config.json").read_text(encoding="utf-8")).get("max_position_embeddings")
    except (OSError, ValueError) as error:
        raise DataError(f"{model / 'config.json'}: cannot be read: {error}") from error
    if not isinstance(window, int) or prompt + response <= window:
        return config
    if window <= prompt:
        raise ConfigError(f"{model}: its context of {window} tokens has no room after {prompt} of prompt")
    rollout = config.rollout.model_copy(update={"max_response_tokens": window - prompt})
    return config.model_copy(update={"rollout": rollout})
