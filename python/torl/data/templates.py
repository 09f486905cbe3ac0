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

TEMPLATES: Mapping[str, str] = MappingProxyType({"torl": TORL_TEMPLATE, "none": "{problem}"})


def render(template: str, question: str) -> str:
    """Put `question` into the template of that name; braces in the question are left alone.

    Raises:
        ConfigError: no template has that name.
    """
    if template not in TEMPLATES:
        raise ConfigError(f"data.template: no template is called {template!r}; there are: {', '.join(TEMPLATES)}")
    head, _, tail = TEMPLATES[template].partition("{problem}")
    return head + question + tail
