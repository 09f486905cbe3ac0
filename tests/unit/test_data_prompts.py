"""Templates to the letter, and prompts that fit."""

import pytest

from torl.data import TEMPLATES, encode_prompts, render
from torl.errors import ConfigError, DataError
from torl.types import Problem


class Characters:
    """One token for each character; what a Hugging Face tokenizer offers of it."""

    eos_token_id = 0

    def __init__(self, first: list[int] | None = None, last: list[int] | None = None) -> None:
        self.first, self.last = first or [], last or []

    def encode(self, text: str) -> list[int]:
        return [*self.first, *map(ord, text), *self.last]


def test_the_template_of_torl_to_the_letter() -> None:
    assert render("torl", "What is 1 + 1?") == (
        "A conversation between User and Assistant. The user asks a question, and the Assistant solves it.\n"
        "User: Please integrate natural language reasoning with programs to solve the problem above, "
        "and put your final answer within \\boxed{}.\nWhat is 1 + 1?\nAssistant:\n"
    )


THINK = (
    "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. "
    "The Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. "
    "The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> tags, "
    "respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>. "
)
ANSWER = (
    "User: You must put your answer inside <answer> </answer> tags, i.e., <answer> answer here </answer>. "
    "And your final answer will be extracted automatically by the \\boxed{} tag.\nThis is the problem:"
)


def test_the_templates_of_zerotir_and_orz_to_the_letter() -> None:
    assert render("orz", "What is {problem}?") == f"{THINK}{ANSWER}\nWhat is {{problem}}?\nAssistant: <think>"
    python = "In your reasoning-process, You can use python-code to solve your problem. "
    assert render("zerotir", "What?") == f"{THINK}{python}{ANSWER}What?\nAssistant: <think>"


@pytest.mark.parametrize("question", ["{problem}", "{}", "{0} {x}", "\\boxed{}", "%s", "", "  indented\n", "\n\nx "])
def test_questions_are_put_in_as_they_are(question: str) -> None:
    assert render("none", question) == question
    head, tail = TEMPLATES["torl"].split("{problem}")
    assert render("torl", question) == head + question + tail


def test_an_unknown_template() -> None:
    with pytest.raises(ConfigError, match="'qwen'; there are: torl, zerotir, orz, none"):
        render("qwen", "q")


def test_prompts_in_order_without_the_long_ones() -> None:
    problems = [Problem(str(length), "x" * length, "1") for length in (5, 10, 11, 3, 400)]
    encoded = encode_prompts(problems, Characters(), "none", 10)
    assert [prompt.problem.id for prompt in encoded.prompts] == ["5", "10", "3"]
    assert encoded.too_long == ("11", "400")
    assert encoded.prompts[0].token_ids == (120,) * 5


def test_a_beginning_of_sequence_token_stays_and_counts() -> None:
    problems = [Problem("a", "xxx", "1")]
    assert encode_prompts(problems, Characters(first=[1]), "none", 4).prompts[0].token_ids == (1, 120, 120, 120)
    with pytest.raises(DataError, match="none of the 1 prompts has at most 3 tokens"):
        encode_prompts(problems, Characters(first=[1]), "none", 3)


def test_a_tokenizer_that_ends_prompts_is_refused() -> None:
    with pytest.raises(DataError, match="end-of-sequence"):
        encode_prompts([Problem("a", "x", "1")], Characters(last=[0]), "none", 100)
