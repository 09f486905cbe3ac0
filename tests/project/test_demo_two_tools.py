"""The world of the demo with two tools: each question has one that knows."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from demo_maker import chat
from demo_maker.two_tools import codes, write_world
from torl.components.tools.search import passages_outcome
from torl.components.tools.search_index import Corpus, open_index


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("world")
    write_world(directory)
    return directory


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_searching_for_a_number_finds_its_code_and_nothing_else_tells_it(world: Path) -> None:
    corpus = Corpus(world / "corpus.jsonl")
    index = open_index(corpus, world)
    for problem in rows(world / "codes.jsonl"):
        (number,) = re.findall(r"\d+", problem["problem"])
        assert (
            passages_outcome(index.search(number, 1)).text == f"Doc 1(Title: {number}) The code is {problem['answer']}."
        )
        assert int(problem["answer"]) != int(number) % chat.DIVISOR  # Python says something else
    corpus.close()


def test_heldout_problems_are_not_trained_on(world: Path) -> None:
    held_out = [row["id"] for name in ("remainders", "codes") for row in rows(world / f"{name}.jsonl")]
    train = rows(world / "train.jsonl")
    assert len(held_out) == 200
    assert len(train) == 700
    assert not {row["id"] for row in train} & set(held_out)
    assert {row["tool"] for row in train} == {"python", "search"}
    different = sum(codes(0)[number] != code for number, code in codes(1).items())
    assert different > 600
