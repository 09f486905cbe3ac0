"""Prompt templates: functions from a problem to the text, or the conversation, that the model continues."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from torl.base.guard import InvalidResultError, describe
from torl.base.options import ChosenFrom
from torl.base.types import Markup, Problem

Messages: TypeAlias = Sequence[Mapping[str, str]]
"""A conversation: each message has a "role" and a "content"."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, with values for variables of the model's chat template.

    Attributes:
        messages: The messages that the model replies to.
        variables: Values of template variables, by name.
    """

    messages: Messages
    variables: Mapping[str, Any] = field(default_factory=dict)


PromptText: TypeAlias = str | Markup | Messages | Conversation
"""A text, or the messages of a conversation. Control tokens in the problem stay text, except in a `Markup`."""


@dataclass(frozen=True, slots=True)
class PromptVariant:
    """One of several prompts that a template gives for a problem.

    Attributes:
        prompt: The prompt.
        weight: Weight of the variant in the draw of each training episode.
    """

    prompt: PromptText
    weight: float = 1.0


TemplateOutput: TypeAlias = PromptText | Mapping[str, PromptVariant]
"""One prompt, or variants by name. Each training episode draws a variant; evaluations use the first."""


class PromptTemplate(Protocol):
    """A prompt template: a function from a problem to a text, to messages, or to variants of them.

    Example, a template with one option:

        from torl import Problem

        def question_first(problem: Problem, hint: str = "Think.") -> str:
            return f"{problem.question}\\n{hint}\\n"

        [data.template]
        name = "my_package.templates:question_first"
        hint = "Use Python."

    Messages are rendered by the model's own chat template.
    """

    def __call__(self, problem: Problem, /) -> TemplateOutput:
        """Return the prompt of a problem, with the options already bound."""
        ...


def chat(
    problem: Problem, system: str = "", suffix: str = "", variables: Mapping[str, Any] | None = None
) -> Conversation:
    """Return a conversation for the model's own chat template, with the tools of the run.

    Args:
        system: System message; the template's own if empty.
        suffix: Text after the question.
        variables: Variables of the template: { enable_thinking = false } for Qwen3, { reasoning_effort = "low" } for
            gpt-oss. Messages of fine-tuning's examples are rendered with them, too.
    """
    before = [{"role": "system", "content": system}] if system else []
    return Conversation([*before, {"role": "user", "content": problem.question + suffix}], variables or {})


def chatml(problem: Problem, system: str = "", suffix: str = "") -> str:
    """Return a prompt in Qwen's markup (ChatML) with one question.

    Args:
        system: System message; none if empty.
        suffix: Text after the question.
    """
    before = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return f"{before}<|im_start|>user\n{problem.question}{suffix}<|im_end|>\n<|im_start|>assistant\n"


def none(problem: Problem) -> Markup:
    """Return the question alone; control tokens that it spells are control tokens."""
    return Markup(problem.question)


TEMPLATES: Mapping[str, Callable[..., Any] | str] = MappingProxyType(
    {
        "torl": "torl.recipes.torl:template",
        "zerotir": "torl.recipes.zerotir:template",
        "orz": "torl.recipes.orz:template",
        "search_r1": "torl.recipes.search_r1:template",
        "none": none,
        "chat": chat,
        "chatml": chatml,
        "qwen25_math": "torl.recipes.baselines:qwen25_math",
        "qwen25_math_tir": "torl.recipes.baselines:qwen25_math_tir",
        "eurus": "torl.recipes.baselines:eurus",
        "tora": "torl.recipes.tora:template",
        "mathcoder": "torl.recipes.mathcoder:template",
        "retool": "torl.recipes.retool:template",
        "artist": "torl.recipes.artist:template",
        "rc_grpo": "torl.recipes.rc_grpo:template",
        "torl_no_tool": "torl.recipes.torl:template_no_tool",
        "dapo": "torl.recipes.dapo:template",
    }
)
"""The prompt templates by the names that a configuration calls them."""


def check_prompt(output: object, problem: Problem) -> None:
    """Raise `InvalidResultError` if the result of a template is not a `TemplateOutput`."""
    outputs = [output]
    if isinstance(output, Mapping):
        outputs = [each.prompt if isinstance(each, PromptVariant) else each for each in output.values()] or [output]
    for each in outputs:
        is_conversation = isinstance(each, Sequence) and all(isinstance(message, Mapping) for message in each)
        if not isinstance(each, str | Markup | Conversation) and not is_conversation:
            raise InvalidResultError(f"expected a text, a list of messages, or variants of them; got {describe(each)}")


TEMPLATE = ChosenFrom(TEMPLATES, "prompt template", "torl", positional_count=1, check=check_prompt)


def load_template(name: str) -> Callable[[Problem], Any]:
    """Return the prompt template of a name, or of a location `package.module:name`, with its default options.

    Raises:
        ValueError: No template has this name.
    """
    template: PromptTemplate = TEMPLATE.choose(name).bind()
    return template
