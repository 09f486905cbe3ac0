"""The demo's pre-training corpus and its tokenizer."""

import re
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from demo_maker.documents import Document, document_text, documents, program_code
from demo_maker.interpreter import NO_OUTPUT, Interpreter, run_here
from demo_maker.operations import OPERATIONS
from demo_maker.problems import HELD_OUT_PAIRS, Program, problem_set
from demo_maker.tokenizer import END_OF_TEXT, VOCABULARY_SIZE, corpus_tokenizer
from torl.recipes.torl import TEMPLATE as TORL_TEMPLATE

CALL = re.compile(r"```python\n(.*?)\n```\n```output\n(.*?)\n```\n", re.DOTALL)
TORL_START, TORL_END = TORL_TEMPLATE.split("{problem}")


@pytest.fixture(scope="module")
def corpus() -> list[Document]:
    return list(islice(documents(Random(11), lambda program: False), 2_000))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return corpus_tokenizer(0, document_count=1_500)


def solutions(corpus: list[Document]) -> list[str]:
    return [text for text in map(document_text, corpus) if text.startswith(TORL_START)]


def test_every_observation_is_the_output_of_its_code(corpus: list[Document]) -> None:
    calls = [call for text in map(document_text, corpus) for call in CALL.findall(text)]
    assert len(calls) > 300
    for code, observation in calls:
        assert run_here(code).observation == observation


def test_the_rates_are_those_of_a_mixed_quality_corpus(corpus: list[Document]) -> None:
    solved = solutions(corpus)
    assert 0.44 <= len(solved) / len(corpus) <= 0.56
    with_code = [text for text in solved if "```python" in text]
    assert 0.34 <= len(with_code) / len(solved) <= 0.48
    firsts = [CALL.findall(text)[0][1] for text in with_code]
    errors = [text for text, first in zip(with_code, firsts, strict=True) if re.match(r"\w+Error", first)]
    assert 0.15 <= len(errors) / len(with_code) <= 0.35
    assert 0.4 <= sum(len(CALL.findall(text)) == 2 for text in errors) / len(errors) <= 0.7
    assert any(first == NO_OUTPUT for first in firsts)


def test_every_solution_ends_in_a_box(corpus: list[Document]) -> None:
    for text in solutions(corpus):
        assert re.search(r"\\boxed\{[^{}]+\}\$\.$", text[len(TORL_START) :]), text
        assert TORL_END in text


def test_excluded_problems_are_not_in_the_corpus() -> None:
    def is_about_products(program: Program) -> bool:
        return "product" in program.names

    def mentions(text: str) -> bool:
        return "the product of" in text or " times " in text

    kept = [document_text(document) for document in islice(documents(Random(2), is_about_products), 500)]
    assert not any(map(mentions, kept))
    assert any(mentions(document_text(document)) for document in islice(documents(Random(2), lambda p: False), 500))


def test_held_out_pairs_are_not_in_the_corpus(corpus: list[Document]) -> None:
    fragments = [(OPERATIONS[source].code, OPERATIONS[step].code) for source, step in HELD_OUT_PAIRS]
    patterns = [
        re.compile(rf"x = {numbered(source)}\n(?:y = |print\(){numbered(step)}\)?\n") for source, step in fragments
    ]
    texts = [document_text(document) for document in corpus]
    assert not [text for text in texts for pattern in patterns if pattern.search(text)]


def numbered(code: str) -> str:
    """A pattern for an operation's code with any arguments."""
    return re.escape(code.replace("{x}", "x")).replace(r"\{0\}", r"\d+").replace(r"\{1\}", r"\d+")


@pytest.mark.parametrize("position", [0, 1])
def test_right_code_is_right_and_the_dominant_mistake_is_not(position: int) -> None:
    for program in problem_set().heldout:
        right = run_here(program_code(program, frozenset()))
        assert right.ok
        assert right.observation == str(program.values[-1])
        assert run_here(program_code(program, frozenset({position}))).observation != right.observation


def test_three_step_code_is_right() -> None:
    for program in problem_set().three_step:
        assert run_here(program_code(program, frozenset())).observation == str(program.values[-1])


def test_the_child_interpreter_agrees_and_survives_a_loop() -> None:
    with Interpreter() as interpreter:
        assert interpreter.run("print(1 + 1)").observation == "2"
        assert not interpreter.run("while True: pass").ok
        assert interpreter.run("1 + 1").observation == NO_OUTPUT
        missing = interpreter.run("print(math.gcd(4, 6))")
    assert not missing.ok
    assert missing.observation == "NameError: name 'math' is not defined. Did you forget to import 'math'?"


# --- tokenizer --------------------------------------------------------------------------------------------


@given(text=st.text())
def test_any_text_survives(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_every_byte_has_a_token(tokenizer: Tokenizer) -> None:
    vocabulary = tokenizer.get_vocab()
    assert sum(len(token) == 1 for token in vocabulary) == 256


@pytest.mark.parametrize("marker", ["```python", "```output"])
def test_markers_span_tokens_and_leave_the_newline_alone(tokenizer: Tokenizer, marker: str) -> None:
    tokens = tokenizer.encode(f"print(1)\n```\n{marker}\n12\n```\n").tokens
    assert "".join(tokens[-7:-4]) == f"{marker}Ċ"
    assert marker not in tokenizer.get_vocab()
    assert not any("Ċ" in token and token != "Ċ" for token in tokenizer.get_vocab())


def test_numbers_fall_into_chunks_of_three(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("1234567").tokens == ["123", "456", "7"]
    assert all(str(number) in tokenizer.get_vocab() for number in range(1_000))
    assert {"00", "000", "007"} <= tokenizer.get_vocab().keys()


def test_vocabulary(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == VOCABULARY_SIZE
    assert tokenizer.token_to_id(END_OF_TEXT) == VOCABULARY_SIZE - 1


def test_a_document_is_the_sum_of_its_segments(corpus: list[Document], tokenizer: Tokenizer) -> None:
    """Observations are spliced in as tokens: the model must know exactly those."""
    for document in corpus[:500]:
        pieces = [token for segment in document for token in tokenizer.encode(segment.text).ids]
        assert tokenizer.encode(document_text(document)).ids == pieces
