"""A model on disk, its prompts, and its context window."""

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
        first = islice(problems.bind()(), evaluation.max_problems)
        template = config.template.bind()
        max_tokens = evaluation.longest_prompt(config)
        encoded = encode_prompts(first, self.tokenizer, template, max_tokens, self.tool_schemas)
        skipped = f", {len(encoded.too_long)} too long, which count as not solved" if encoded.too_long else ""
        count = len(encoded.prompts)
        console.line(f"{name}: {count} problem{'s' * (count != 1)}{skipped}")
        return encoded

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


def cap_to_context(config: _Config, model: Path) -> _Config:
    """Lower the response limit of a configuration to the model's context window.

    Raises:
        DataError: The model has no readable config.json.
        ConfigError: The prompts alone fill the context window.
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
