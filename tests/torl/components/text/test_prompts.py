"""Templates to the letter, and prompts that fit."""

import copy
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing

from tokenizers_for_tests import byte_level_bpe, metaspace_bpe, metaspace_unigram
from torl.base.errors import DataError
from torl.base.types import Markup, Problem, Prompt
from torl.components.text.prompts import PromptStream, encode_prompts
from torl.components.text.sources import digest_problems
from torl.components.text.templates import TEMPLATES, PromptVariant, load_template
from torl.recipes.rc_grpo import template as rc_grpo
from torl.recipes.torl import TEMPLATE as TORL_TEMPLATE

NONE = load_template("none")


def render(name: str, question: str) -> str:
    return load_template(name)(Problem("p", question, "1"))


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
    assert load_template("none")(Problem("p", question, "1")) == Markup(question)
    head, tail = TORL_TEMPLATE.split("{problem}")
    assert render("torl", question) == head + question + tail


def test_templates_by_name() -> None:
    papers = ["qwen25_math", "qwen25_math_tir", "eurus", "tora", "mathcoder", "retool", "artist"]
    names = ["torl", "zerotir", "orz", "search_r1", "none", "chat", "chatml", *papers]
    assert list(TEMPLATES) == [*names, "rc_grpo", "torl_no_tool", "dapo"]


def test_torls_control_differs_from_its_prompt_in_the_words_on_programs_only() -> None:
    problem = Problem("a", "What is 1 + 1?", "2")
    prompts = [load_template(name)(problem) for name in ("torl", "torl_no_tool")]
    assert "programs" in prompts[0]
    assert "program" not in prompts[1]
    first, last = (
        {prompt.split("Please ")[0] for prompt in prompts},
        {prompt.split(" the problem above")[1] for prompt in prompts},
    )
    assert len(first) == len(last) == 1


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
    problem, goal = Problem("a", "x", "1"), both_goals("<{}>", lines=("hi", "low"), high_fraction=0.75)
    (prompt,) = encode_prompts([problem], Characters(), goal, 7).prompts
    (other,) = prompt.variants
    assert (prompt.token_ids, other.token_ids) == (tuple(map(ord, "<hi\nx>")), tuple(map(ord, "<low\nx>")))
    assert prompt.problem is problem
    low = prompt.for_episode(int(0.76 * 2**63))
    assert prompt.for_episode(int(0.74 * 2**63)) is prompt
    assert (low.token_ids, low.problem) == (other.token_ids, problem)
    assert [each.variant for each in (prompt, low, Prompt(problem, (1,)))] == ["high", "low", None]
    with pytest.raises(DataError, match="has at most 6 tokens"):
        encode_prompts([problem], Characters(), goal, 6)
    (single,) = encode_prompts([problem], Characters(), NONE, 1).prompts
    assert single == Prompt(problem, (ord("x"),))


def both_goals(text: str, **options: Any) -> Callable[[Problem], Mapping[str, PromptVariant]]:
    """RC-GRPO's variants of a template that puts the question into `text`."""
    globals()["goal_template"] = lambda problem: text.format(problem.question)
    return functools.partial(rc_grpo, template=f"{__name__}:goal_template", **options)


def test_weights_of_variants_need_not_add_up_to_one() -> None:
    variants = {name: PromptVariant(name, weight) for name, weight in (("a", 1.0), ("b", 2.0), ("c", 5.0))}
    (prompt,) = encode_prompts([Problem("p", "x", "1")], Characters(), lambda _: variants, 7).prompts
    drawn = [prompt.for_episode(int((index + 0.5) / 8 * 2**63)).variant for index in range(8)]
    assert drawn == ["a", "b", "b", *"ccccc"]


def test_a_beginning_of_sequence_token_stays_and_counts() -> None:
    problems = [Problem("a", "xxx", "1")]
    assert encode_prompts(problems, Characters(first=[1]), NONE, 4).prompts[0].token_ids == (1, 120, 120, 120)
    with pytest.raises(DataError, match=r"none of the 1 prompts has at most 3 tokens .*; the shortest has 4, desc"):
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


def test_models_template_receives_the_tools_without_added_text() -> None:
    tokenizer = copy.deepcopy(byte_level_bpe())
    tokenizer.chat_template = TOOLS_THEN_MESSAGES
    template = functools.partial(load_template("chat"), system="Think.", suffix=" Say.")
    (prompt,) = encode_prompts([Problem("a", "What?", "1")], tokenizer, template, 1000, lambda: TOOLS).prompts
    text = tokenizer.decode(prompt.token_ids)
    assert text == "python: Runs code.\nsystem: Think.\nuser: What? Say.\nassistant: "


def test_template_variables_are_passed_and_unknown_ones_refused() -> None:
    tokenizer = copy.deepcopy(byte_level_bpe())
    tokenizer.chat_template = "{{ messages[0].content }}{% if enable_thinking is false %}<think></think>{% endif %}"
    problems = [Problem("a", "What?", "1")]
    template = functools.partial(load_template("chat"), variables={"enable_thinking": False})
    (prompt,) = encode_prompts(problems, tokenizer, template, 1000).prompts
    assert tokenizer.decode(prompt.token_ids) == "What?<think></think>"
    misspelled = functools.partial(load_template("chat"), variables={"enable_thinkin": False})
    with pytest.raises(DataError, match="has no variable 'enable_thinkin'"):
        encode_prompts(problems, tokenizer, misspelled, 1000)


def test_missing_chat_template_is_an_error() -> None:
    with pytest.raises(DataError, match=r"no chat template.*chat_template\.jinja"):
        encode_prompts([Problem("a", "What?", "1")], byte_level_bpe(), load_template("chat"), 1000)


def test_a_problem_that_the_chat_template_refuses_is_named() -> None:
    tokenizer = copy.deepcopy(byte_level_bpe())
    tokenizer.chat_template = "{{ raise_exception('no users, please') }}"
    with pytest.raises(DataError, match=r"problem a: the model's chat template refuses it: no users, please"):
        encode_prompts([Problem("a", "What?", "1")], tokenizer, load_template("chat"), 1000)


# --- control tokens that a text spells ------------------------------------------------------------------------------


@functools.cache
def chat_tokenizer(added: tuple[str, ...] = ("<think>",)) -> Any:
    tokenizer = copy.deepcopy(byte_level_bpe())
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.add_tokens([*added])
    tokenizer.chat_template = (
        "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content | trim }}<|im_end|>\n"
        "{% endfor %}<|im_start|>assistant\n"
    )
    return tokenizer


def control_tokens(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """Tokens that were added to the vocabulary, in their order."""
    added = {index: token for token, index in tokenizer.added_tokens_encoder.items()}
    return "".join(added.get(token, "") for token in token_ids)


@pytest.mark.parametrize("name", ["chat", "chatml", "torl", "retool"])
@given(
    pieces=st.lists(st.sampled_from(["<|im_end|>", "<think>", "<|im_", "\ue000", "\ue0000\ue001", " é\n"]) | st.text())
)
@settings(max_examples=50, deadline=None)
def test_no_text_of_a_problem_becomes_a_control_token(name: str, pieces: list[str]) -> None:
    tokenizer, question = chat_tokenizer(), "".join(pieces)
    (prompt,) = encode_prompts([Problem("a", question, "1")], tokenizer, load_template(name), 10_000).prompts
    (empty,) = encode_prompts([Problem("a", "", "1")], tokenizer, load_template(name), 10_000).prompts
    assert control_tokens(tokenizer, prompt.token_ids) == control_tokens(tokenizer, empty.token_ids)
    text = tokenizer.decode(prompt.token_ids)
    assert (question.strip() if name == "chat" else question) in text
    assert len(text) - len(tokenizer.decode(empty.token_ids)) <= len(question)


def test_configured_text_and_raw_questions_may_hold_control_tokens() -> None:
    tokenizer, problem = chat_tokenizer(), Problem("a", "<think>", "1")
    template = functools.partial(load_template("chat"), system="In <think>.")
    (prompt,) = encode_prompts([problem], tokenizer, template, 1000).prompts
    control_text = "<|im_start|><think><|im_end|><|im_start|><|im_end|><|im_start|>"
    assert control_tokens(tokenizer, prompt.token_ids) == control_text
    goal = both_goals("{}!", lines=("<|im_start|>", "<|im_end|>"), high_fraction=0.5)
    (prompt,) = encode_prompts([problem], tokenizer, goal, 1000).prompts
    assert control_tokens(tokenizer, prompt.token_ids) == "<|im_start|>"
    assert control_tokens(tokenizer, prompt.variants[0].token_ids) == "<|im_end|>"
    (prompt,) = encode_prompts([problem], tokenizer, NONE, 1000).prompts
    assert prompt.token_ids == tuple(tokenizer.encode("<think>"))


def test_no_text_of_a_tools_schema_becomes_a_control_token() -> None:
    schema = {"type": "object", "properties": {"<|im_end|>": {"description": "<think>", "enum": ["<|im_start|>"]}}}
    tools = [{"type": "function", "function": {"name": "f", "description": "<|im_end|>", "parameters": schema}}]
    tokenizer = chat_tokenizer()
    (prompt,) = encode_prompts([Problem("a", "?", "1")], tokenizer, load_template("chat"), 1000, lambda: tools).prompts
    assert control_tokens(tokenizer, prompt.token_ids) == "<|im_start|><|im_end|><|im_start|>"
    assert tokenizer.decode(prompt.token_ids).startswith(f"{json.dumps(tools[0])}\n<|im_start|>user")


@pytest.mark.parametrize("base", [byte_level_bpe, metaspace_bpe, metaspace_unigram])
@pytest.mark.parametrize("before", ["", "Let us see. "])
def test_control_token_in_text_is_encoded_as_ordinary_text(base: Callable[[], Any], before: str) -> None:
    """With the blank that SentencePiece puts before a text, and what a post-processor puts there."""
    without, problem = copy.deepcopy(base()), Problem("a", "<think> 12 <think>x", "1")
    without.backend_tokenizer.post_processor = TemplateProcessing(single="<start> $A", special_tokens=[("<start>", 9)])
    having = copy.deepcopy(without)
    having.add_tokens(["<think>"])
    (prompt,) = encode_prompts([problem], having, lambda each: f"{before}{each.question}", 1000).prompts
    assert prompt.token_ids == tuple(without.encode(f"{before}{problem.question}"))
    assert prompt.token_ids[0] == 9


@given(question=st.lists(st.just("<think>") | st.text(max_size=5)).map("".join))
@settings(max_examples=100, deadline=None)
def test_control_token_in_a_conversation_is_encoded_as_ordinary_text(
    question: str,
) -> None:
    without = chat_tokenizer(added=())
    (expected,) = encode_prompts([Problem("a", question, "1")], without, load_template("chat"), 10_000).prompts
    (prompt,) = encode_prompts([Problem("a", question, "1")], chat_tokenizer(), load_template("chat"), 10_000).prompts
    assert prompt.token_ids == expected.token_ids


@pytest.mark.parametrize("limit", [20, 100])
def test_a_stream_counts_and_hashes_the_problems_that_it_has_read(limit: int) -> None:
    """Also those that are too long: the hash shows whether a source has changed, or the limit of its prompts."""
    problems = [Problem(str(number), "x" * number * 10, "1") for number in range(1, 6)]
    tokenizer: Any = Characters()
    stream = PromptStream(lambda: problems, tokenizer, NONE, limit)
    assert stream.source.entry()["rows"] == 0
    for _ in range(2):
        list(stream)
        assert stream.source.entry() == digest_problems(problems)
    next(iter(stream))
    assert stream.source.entry() == digest_problems(problems, 1)
    assert digest_problems(problems, 1) == digest_problems(problems[:2], 1) != digest_problems(problems[:1])
    for change in ({"id": "9"}, {"question": "y"}, {"answer": "2"}):
        assert digest_problems([*problems[:-1], replace(problems[-1], **change)]) != digest_problems(problems)
