"""Templates to the letter, and prompts that fit."""

import copy
import functools

import pytest

from tokenizers_for_tests import byte_level_bpe
from torl.errors import DataError
from torl.text.prompts import encode_prompts
from torl.text.reward_goal import RewardGoal
from torl.text.templates import TEMPLATES, TORL_TEMPLATE
from torl.types import Problem, Prompt

NONE = TEMPLATES["none"]


def render(name: str, question: str) -> str:
    return TEMPLATES[name](Problem("p", question, "1"))


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


def test_retool_s_prompt_is_that_of_its_data() -> None:
    """Row by row the first message of JoeYing/ReTool-SFT but for the question, as Qwen's template shows it."""
    rendered = render("retool", "What is {1}?")
    assert rendered.startswith(
        "<|im_start|>user\nSolve the following problem step by step. You now have the ability to"
    )
    assert "\nEach code snippet is wrapped with `<code>\n```python\ncode snippet\n```\n</code>`.\n" in rendered
    answer = "<answer>\n\\boxed{'The final answer goes here.'}\n</answer>"
    assert f"\n{answer}\n\n*user question:*\nWhat is {{1}}?\n\nRemember to place the final answer" in rendered
    assert rendered.endswith(f"using the format: \n{answer}<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("question", ["{problem}", "{}", "{0} {x}", "\\boxed{}", "%s", "", "  indented\n", "\n\nx "])
def test_questions_are_put_in_as_they_are(question: str) -> None:
    assert render("none", question) == question
    head, tail = TORL_TEMPLATE.split("{problem}")
    assert render("torl", question) == head + question + tail


def test_templates_by_name() -> None:
    papers = ["qwen25_math", "qwen25_math_tir", "eurus", "tora", "mathcoder", "retool", "artist"]
    names = ["torl", "zerotir", "orz", "search_r1", "none", "chat", "chatml", *papers]
    assert list(TEMPLATES) == names


def test_a_template_is_given_the_whole_problem() -> None:
    problem = Problem("a", "xx", "1", {"hint": "yyy"})
    (prompt,) = encode_prompts(
        [problem], Characters(), lambda problem: f"{problem.question}{problem.metadata['hint']}", 10
    ).prompts
    assert prompt.problem is problem
    assert prompt.token_ids == tuple(map(ord, "xxyyy"))


def test_prompts_in_order_without_the_long_ones() -> None:
    problems = [Problem(str(length), "x" * length, "1") for length in (5, 10, 11, 3, 400)]
    encoded = encode_prompts(problems, Characters(), NONE, 10)
    assert [prompt.problem.id for prompt in encoded.prompts] == ["5", "10", "3"]
    assert encoded.too_long == ("11", "400")
    assert encoded.prompts[0].token_ids == (120,) * 5


def test_prompts_that_say_which_reward_is_wanted() -> None:
    """In the template, before the question; the problem stays what it is, and the longer of both counts."""
    problem, goal = Problem("a", "x", "1"), RewardGoal(high="hi", low="low", high_share=0.75)
    (prompt,) = encode_prompts([problem], Characters(), lambda each: f"<{each.question}>", 7, goal=goal).prompts
    assert (prompt.token_ids, prompt.low_reward_token_ids) == (tuple(map(ord, "<hi\nx>")), tuple(map(ord, "<low\nx>")))
    assert prompt.problem is problem
    low = prompt.of_episode(int(0.76 * 2**63))
    assert prompt.of_episode(int(0.74 * 2**63)) is prompt
    assert (low.token_ids, low.problem) == (prompt.low_reward_token_ids, problem)
    assert [each.wants_high_reward for each in (prompt, low, Prompt(problem, (1,)))] == [True, False, None]
    with pytest.raises(DataError, match="has at most 6 tokens"):
        encode_prompts([problem], Characters(), lambda each: f"<{each.question}>", 6, goal=goal)
    (silent,) = encode_prompts([problem], Characters(), NONE, 1, goal=RewardGoal()).prompts
    assert silent == Prompt(problem, (ord("x"),))


def test_a_beginning_of_sequence_token_stays_and_counts() -> None:
    problems = [Problem("a", "xxx", "1")]
    assert encode_prompts(problems, Characters(first=[1]), NONE, 4).prompts[0].token_ids == (1, 120, 120, 120)
    with pytest.raises(DataError, match="none of the 1 prompts has at most 3 tokens"):
        encode_prompts(problems, Characters(first=[1]), NONE, 3)


def test_a_tokenizer_that_ends_prompts_is_refused() -> None:
    with pytest.raises(DataError, match="end-of-sequence"):
        encode_prompts([Problem("a", "x", "1")], Characters(last=[0]), NONE, 100)


def test_half_a_character_is_refused_with_the_problem_that_holds_it() -> None:
    with pytest.raises(DataError, match="problem b: its prompt cannot be encoded"):
        encode_prompts([Problem("a", "x", "1"), Problem("b", "\ud800", "1")], byte_level_bpe(), NONE, 100)


# --- the model's own template -------------------------------------------------------------------------------------

TOOLS_THEN_MESSAGES = (
    "{% for tool in tools or [] %}{{ tool.function.name }}: {{ tool.function.description }}\n{% endfor %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
TOOLS = [{"type": "function", "function": {"name": "python", "description": "Runs code.", "parameters": {}}}]


def test_the_models_own_template_is_told_of_the_tools_and_nothing_is_added_to_its_text() -> None:
    tokenizer = copy.deepcopy(byte_level_bpe())
    tokenizer.chat_template = TOOLS_THEN_MESSAGES
    template = functools.partial(TEMPLATES["chat"], system="Think.", ending=" Say.")
    (prompt,) = encode_prompts([Problem("a", "What?", "1")], tokenizer, template, 1000, lambda: TOOLS).prompts
    said = tokenizer.decode(prompt.token_ids)
    assert said == "python: Runs code.\nsystem: Think.\nuser: What? Say.\nassistant: "


def test_variables_of_the_models_template_are_told_and_those_that_it_lacks_are_refused() -> None:
    tokenizer = copy.deepcopy(byte_level_bpe())
    tokenizer.chat_template = "{{ messages[0].content }}{% if enable_thinking is false %}<think></think>{% endif %}"
    problems = [Problem("a", "What?", "1")]
    template = functools.partial(TEMPLATES["chat"], variables={"enable_thinking": False})
    (prompt,) = encode_prompts(problems, tokenizer, template, 1000).prompts
    assert tokenizer.decode(prompt.token_ids) == "What?<think></think>"
    misspelled = functools.partial(TEMPLATES["chat"], variables={"enable_thinkin": False})
    with pytest.raises(DataError, match="has no variable 'enable_thinkin'"):
        encode_prompts(problems, tokenizer, misspelled, 1000)


def test_a_model_without_a_chat_template_says_so() -> None:
    with pytest.raises(DataError, match=r"no chat template.*chat_template\.jinja"):
        encode_prompts([Problem("a", "What?", "1")], byte_level_bpe(), TEMPLATES["chat"], 1000)


def test_a_problem_that_the_chat_template_refuses_is_named() -> None:
    tokenizer = copy.deepcopy(byte_level_bpe())
    tokenizer.chat_template = "{{ raise_exception('no users, please') }}"
    with pytest.raises(DataError, match=r"problem a: the model's chat template refuses it: no users, please"):
        encode_prompts([Problem("a", "What?", "1")], tokenizer, TEMPLATES["chat"], 1000)
