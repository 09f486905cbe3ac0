"""What is played, and how: the model, its prompts, its episodes."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from torl.config.choices import (
    TOOL,
    AgentChoice,
    EnvironmentChoice,
    FormatChoice,
    ProblemChoice,
    SamplerChoice,
    TemplateChoice,
    ToolChoice,
    default_choice,
)
from torl.environments import EnvironmentLimits
from torl.formats import FORMATS, ChatFormat
from torl.options import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Section,
)
from torl.paths import FILE_NAME_PATTERN


class LoraConfig(Section):
    """Adapters that are trained in the place of the model's own weights (LoRA), which stay as they are."""

    rank: NonNegativeInt = 0
    """Rank of what an adapter adds to a weight, such as 32; 0 trains all weights."""
    alpha: PositiveFloat = 64.0
    """What an adapter adds is multiplied by `alpha` over `rank`."""
    target_modules: tuple[str, ...] = ()
    """Names of the linear layers that get an adapter, such as "q_proj"; all but the head when empty."""


class ModelConfig(Section):
    """The policy to train."""

    path: str
    """Directory of a Hugging Face causal language model with its tokenizer, or the hub's name of one: owner/name."""
    attention: Literal["sdpa", "flash_attention_2", "eager"] = "sdpa"
    """Attention implementation of the learner: `sdpa` takes torch's fused kernels; flash-attn is not part of torl."""
    kernels: Literal["auto", "torch", "liger"] = "auto"
    """The learner's norms, rotary positions and gated layers: `auto` takes Liger's kernels on CUDA where installed."""
    head_dtype: Literal["float32"] | None = None
    """Precision that logits are rounded to, by the learner and by vLLM; that of the weights when unset. In float32 the
    two agree more closely; sampling is a little slower, and logits that are kept take twice the memory."""
    lora: LoraConfig = Field(default_factory=LoraConfig)
    """Adapters in the place of all weights."""

    @property
    def adapters(self) -> LoraConfig | None:
        """The adapters that are trained; None where all weights are."""
        return self.lora if self.lora.rank > 0 else None


class PromptConfig(Section):
    """How a problem becomes a prompt."""

    template: TemplateChoice = default_choice("torl")
    """Prompt template."""
    max_prompt_tokens: PositiveInt = 400
    """Problems whose prompt is longer are dropped and counted."""


class DataConfig(PromptConfig):
    """The problems."""

    train: ProblemChoice
    """Problems to train on: a file (.jsonl, .json or .parquet)."""
    sampler: SamplerChoice = default_choice("shuffled")
    """Order in which they are met: "shuffled" epochs, a "curriculum" that leaves problems out of them, or a "stream"
    that holds only a buffer of them."""
    evaluation: dict[str, ProblemChoice] = Field({})
    """Problems to evaluate on, by the name they get in the metrics."""

    @field_validator("evaluation")
    @classmethod
    def _names_of_files(cls, sets: dict[str, Any]) -> dict[str, Any]:
        for name in sets:
            if not FILE_NAME_PATTERN.fullmatch(name):
                raise ValueError(f"evaluation set {name!r}: use letters, digits and . _ + - in its name")
        return sets


def _named_by_key(tools: Any) -> Any:
    """A tool's section without a name chooses the tool that one of its options says, or that its key names."""
    if not isinstance(tools, dict):
        return tools
    return {key: {"name": key, **TOOL.expand(tool)} if isinstance(tool, dict) else tool for key, tool in tools.items()}


def _is_chat(format: Any) -> bool:
    return isinstance(format, type) and issubclass(format, ChatFormat)


class RolloutConfig(Section):
    """How episodes are played."""

    prompts_per_step: PositiveInt = 128
    """Prompts in one training step."""
    samples_per_prompt: PositiveInt = 16
    """Trajectories for each prompt: the size of a group."""
    max_response_tokens: PositiveInt = 3072
    """Limit on the tokens of a response, sampled and observed together."""
    temperature: NonNegativeFloat = 1.0
    """Sampling temperature; 0 is greedy."""
    top_p: PositiveFraction = 1.0
    """Nucleus sampling mass; the trainer's log-probabilities are exact only at 1."""
    format: FormatChoice = default_choice("torl")
    """Protocol of a tool call: "torl" runs the last block at ```output, "tora" too, with ToRA's results; "mathcoder"
    runs each block of code between MathCoder's tokens, "zerotir" each block when its fence closes; "search_r1" searches
    for what stands between <search> tags; "retool" runs code between <code> tags, "artist" between <python> tags. Of
    chat models: "hermes" (Qwen too), "llama3", "mistral", "deepseek", "kimi", "harmony" (gpt-oss)."""
    tools: Annotated[dict[str, ToolChoice], BeforeValidator(_named_by_key)] = default_choice({"python": {}})
    """The tools, by the names that the format calls them."""
    environment: EnvironmentChoice | None = None
    """What an episode is a conversation with, beside the tools: it may begin the episode, answer what calls no tool,
    end it, and say what it is worth. None when unset. It needs the format of a chat model."""
    agent: AgentChoice | None = None
    """A program that plays the episodes: it asks the model by OpenAI's chat completions, and has tools of its own in
    the place of the run's. A "command", started for each episode, or a coroutine "function" of a module."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Strings that end a response, wherever it stands in its turn; kept in the text and in the loss."""
    max_tool_calls: NonNegativeInt = 1
    """Tool calls an episode may make (C, or ZeroTIR's N). After the last, all is text; 0 trains without a tool."""
    end_at_void_turn: bool = False
    """End an episode whose turn asks for output with neither a code block nor a boxed answer in it (SimpleTIR)."""
    speculative_execution: bool = True
    """Begin a call as soon as its code block closes, before its output is asked for; of tools that allow it."""
    max_concurrent_episodes: PositiveInt | None = None
    """Episodes being sampled at once; those that wait for a tool are not counted. 1024 when unset, and on GPUs 512 for
    each engine where that is more."""
    max_staleness: NonNegativeInt = 0
    """Steps that are played ahead of the learner; 0 trains synchronously. With more, tokens are up to so many updates
    older than the policy that learns from them, which `algorithm.importance_correction` makes up for."""
    max_failed_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Largest share of the episodes played for a step or an evaluation that tools may spoil by giving no outcome. These
    are left out of their groups and counted; beyond it the run stops."""
    stall_timeout_seconds: PositiveFloat = 1800.0
    """Longest time in which a tool or the reward may give no answer, or the controller stand still, before the run is
    given up."""

    @property
    def max_turns(self) -> int | None:
        """Messages that the model may write in an episode with an environment."""
        bounds = None if self.environment is None else self.environment.common_options
        return bounds.max_turns if isinstance(bounds, EnvironmentLimits) else None

    @model_validator(mode="before")
    @classmethod
    def _programs_have_their_own_tools(cls, section: Any) -> Any:
        """The run's, also those of a preset, would be started and asked by nobody."""
        if not isinstance(section, dict) or section.get("agent") is None:
            return section
        return {**section, "tools": {}}

    @model_validator(mode="after")
    def _can_hold_a_conversation(self) -> Self:
        partners = [name for name in ("agent", "environment") if getattr(self, name) is not None]
        if len(partners) > 1:
            raise ValueError("an agent program and an environment cannot play an episode together: leave one out")
        if not partners or _is_chat(self.format.target):
            return self
        families = ", ".join(name for name, each in FORMATS.items() if _is_chat(each))
        raise ValueError(f"{partners[0]} needs the format of a chat model: choose rollout.format among {families}")
