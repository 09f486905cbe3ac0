"""Prompt templates by name, word for word."""

from collections.abc import Mapping
from types import MappingProxyType

from torl.errors import ConfigError

# ToRL, section 2: the same text for every model, so that a base model needs no chat format. It says "above"
# though the problem stands below.
TORL_TEMPLATE = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves it.\n"
    "User: Please integrate natural language reasoning with programs to solve the problem above, "
    "and put your final answer within \\boxed{}.\n"
    "{problem}\n"
    "Assistant:\n"
)

# ORZ's prompt, and ZeroTIR's ("ZERO_TIR" of its code), which is nearly the same with one sentence more. The model goes
# on behind <think>, in the middle of a line.
_THINK_AND_ANSWER = (
    "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. "
    "The Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. "
    "The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> tags, "
    "respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>.{python} "
    "User: You must put your answer inside <answer> </answer> tags, i.e., <answer> answer here </answer>. "
    "And your final answer will be extracted automatically by the \\boxed{} tag.\n"
    "This is the problem:{newline}{problem}\n"
    "Assistant: <think>"
)
ZEROTIR_TEMPLATE = _THINK_AND_ANSWER.replace(
    "{python}", " In your reasoning-process, You can use python-code to solve your problem."
).replace("{newline}", "")
ORZ_TEMPLATE = _THINK_AND_ANSWER.replace("{python}", "").replace("{newline}", "\n")

TEMPLATES: Mapping[str, str] = MappingProxyType(
    {"torl": TORL_TEMPLATE, "zerotir": ZEROTIR_TEMPLATE, "orz": ORZ_TEMPLATE, "none": "{problem}"}
)


def render(template: str, question: str) -> str:
    """Put `question` into the template of that name; braces in the question are left alone.

    Raises:
        ConfigError: no template has that name.
    """
    if template not in TEMPLATES:
        raise ConfigError(f"data.template: no template is called {template!r}; there are: {', '.join(TEMPLATES)}")
    head, _, tail = TEMPLATES[template].partition("{problem}")
    return head + question + tail
