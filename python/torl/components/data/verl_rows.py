"""Rows in the layout of verl and ToRL: `data_source, prompt[{role, content}], reward_model{ground_truth}, extra_info`.

The question is the only user message. Instructions that are known to be added to questions are removed, also from a
system message, because torl's template adds its own. A row with another system message is invalid.
"""

import re
from collections.abc import Mapping
from typing import Any

from torl.components.data.rows import InvalidRowError, describe, has_value, is_missing, require_read
from torl.components.data.values import find_value, name_columns

# ToRL's, verl's for MATH and GSM8K, Qwen2.5-Math's, Eurus-2's and DAPO's.
INSTRUCTIONS = (
    r"\s*Please integrate natural language reasoning with programs to solve the problem above, "
    r"and put your final answer within \\boxed\{\}\.\s*\Z",
    r"\s*Let's think step by step and output the final answer within \\boxed\{\}\.\s*\Z",
    r'\s*Let\'s think step by step and output the final answer after "####"\.\s*\Z',
    r"\s*Please reason step by step, and put your final answer within \\boxed\{\}\.\s*\Z",
    r"\s*Present the answer in LaTex format: \\boxed\{Your answer\}\s*\Z",
    r"\ASolve the following math problem step by step\. The last line of your response should be of the form "
    r"Answer: \$Answer \(without quotes\) where \$Answer is the answer to the problem\.\s*",
    r'\s*Remember to put your answer on its own line after "Answer:"\.\s*\Z',
)
"""Regular expressions of the instructions."""

_HINT = 'columns = { problem = "prompt.1.content", answer = "reward_model.ground_truth" } reads the question alone'


def is_verl_row(row: Any) -> bool:
    """Whether a row has the layout of verl."""
    names = ("reward_model", "prompt")  # parquet gives them to the other rows of a file, without a value
    return isinstance(row, Mapping) and names[0] in row and not all(is_missing(row.get(name)) for name in names)


def question_and_answer(location: str, row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the values of the question and the answer.

    Raises:
        InvalidRowError: The row lacks one, or its prompt is a conversation.
    """
    for name in ("prompt", "reward_model"):
        if row.get(name) is None:
            raise InvalidRowError(location, "missing_column", f"the column {name!r} is missing{name_columns(row)}")
    reward_model = row["reward_model"]
    if not isinstance(reward_model, dict) or "ground_truth" not in reward_model:
        raise InvalidRowError(location, "missing_column", "the column 'reward_model.ground_truth' is missing")
    return _user_message(location, row["prompt"]), reward_model["ground_truth"]


def verl_id(row: Mapping[str, Any]) -> Any:
    """Return the id of a row, or None."""
    given = find_value(row, "extra_info.id")
    return find_value(row, "extra_info.index") if given is None else given


def has_index(row: Mapping[str, Any]) -> bool:
    """Whether the id of a row is an index: it counts the rows of a source or a file, and repeats if they are joined."""
    return find_value(row, "extra_info.id") is None and verl_id(row) is not None


def _user_message(location: str, prompt: Any) -> Any:
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not all(isinstance(message, dict) for message in prompt):
        message = f"'prompt' must be text or a list of messages, got {describe(prompt)}"
        raise InvalidRowError(location, "question_not_text", message)
    roles = [message.get("role") for message in prompt]
    if [role for role in roles if role != "system"] != ["user"]:
        shown = ", ".join(map(str, roles))
        raise InvalidRowError(location, "question_not_text", f"'prompt' must contain one user message, got: {shown}")
    for place, message in enumerate(prompt):
        require_read(f"{location}: prompt[{place}]", message, ("role", "content"), _HINT)
        if message["role"] == "system" and not _is_instruction(message.get("content")):
            raise InvalidRowError(
                location,
                "system_message",
                f"the system message of 'prompt' is not read, because the run's template adds its own: "
                f"{message.get('content')!r:.60}; {_HINT}",
            )
    content = prompt[roles.index("user")].get("content")
    return content.strip() if isinstance(content, str) else content


def _is_instruction(content: Any) -> bool:
    """Whether a system message says nothing but known instructions."""
    if isinstance(content, str):
        for pattern in INSTRUCTIONS:
            content = re.sub(pattern, "", content, flags=re.DOTALL)
    return not has_value(content)
