"""Search over a corpus: results are those the formula ranks highest, and the index is made once."""

import asyncio
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from torl.base.component import RunContext
from torl.base.errors import ConfigError, DataError, ToolUnavailableError
from torl.components.tools import Bm25Tool
from torl.components.tools.search import Bm25Options, passages_outcome
from torl.components.tools.search_index import Corpus, open_index

WORDS = [f"w{number}" for number in range(30)]


def corpus_of(path: Path, texts: Sequence[str]) -> Path:
    lines = [json.dumps({"id": str(number), "contents": f"t{number}\n{text}"}) for number, text in enumerate(texts)]
    path.write_text("\n".join(lines) + "\n")
    return path


def passages(outcome_text: str) -> list[int]:
    """The numbers in the titles of the results."""
    return [int(number) for number in re.findall(r"^Doc \d+\(Title: t(\d+)\)", outcome_text, re.MULTILINE)]


async def searching(path: Path, query: str, **options: Any) -> list[int]:
    tool = Bm25Tool(Bm25Options(corpus=str(path), **options))
    await tool.start(RunContext())
    try:
        return passages((await tool.session(0).call({"query": query})).text)
    finally:
        await tool.close()


def naive_ranking(texts: Sequence[str], query: str, k1: float = 1.5, b: float = 0.75) -> list[tuple[float, int]]:
    """BM25 as Lucene computes it (Kamphuis et al. 2020, table 1), one passage and one word at a time."""
    documents = [[f"t{number}", *text.split()] for number, text in enumerate(texts)]
    average = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for word in query.split():
            having = sum(word in other for other in documents)
            idf = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
            count = document.count(word)
            score += idf * count / (count + k1 * (1 - b + b * len(document) / average))
        scores.append(score)
    return sorted((-score, number) for number, score in enumerate(scores) if score > 0)


async def test_results_are_the_highest_ranked_by_the_formula(tmp_path: Path) -> None:
    chance = Random(7)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(3, 12))) for _ in range(60)]
    path = corpus_of(tmp_path / "corpus.jsonl", texts)
    tool = Bm25Tool(Bm25Options(corpus=str(path), top_k=5))
    await tool.start(RunContext())
    for _ in range(20):
        query = " ".join(chance.choices(WORDS, k=2))
        expected = naive_ranking(texts, query)
        ours = passages((await tool.call({"query": query})).text)
        assert len(ours) == min(5, len(expected))
        scores = {number: -score for score, number in expected}
        assert [scores[number] for number in ours] == pytest.approx([-score for score, _ in expected[:5]], rel=1e-5)
    await tool.close()


async def test_ties_rank_by_position_and_only_matches_are_returned(tmp_path: Path) -> None:
    path = corpus_of(tmp_path / "corpus.jsonl", ["alpha beta", "gamma", "beta alpha", "alpha beta", "beta alpha"])
    assert await searching(path, "alpha", top_k=3) == [0, 2, 3]
    assert await searching(path, "alpha", top_k=9) == [0, 2, 3, 4]
    assert await searching(path, "Gamma!", top_k=9) == [1]
    assert await searching(path, "delta") == await searching(path, "?") == []


async def test_passages_are_shown_in_search_r1s_words(tmp_path: Path) -> None:
    """As `_passages2string` shows those of its `example/corpus.jsonl`."""
    rendered = passages_outcome(['"Evan Morris"\nA lobbyist.\nIn Washington.', "No title"])
    assert rendered.text == 'Doc 1(Title: "Evan Morris") A lobbyist.\nIn Washington.\nDoc 2(Title: No title) '
    assert passages_outcome([]).text == "Nothing was found."
    path = tmp_path / "titled.jsonl"
    path.write_text('\n{"title": "Paris", "text": "The capital of France."}\r\n\n{"text": "Köln liegt am Rhein."}')
    tool = Bm25Tool(Bm25Options(corpus=str(path)))
    await tool.start(RunContext())
    assert (await tool.call({"query": "capital"})).text == "Doc 1(Title: Paris) The capital of France."
    assert (await tool.call({"query": "köln"})).text == "Doc 1(Title: ) Köln liegt am Rhein."
    await tool.close()


async def test_an_index_is_built_once_for_a_corpus(tmp_path: Path) -> None:
    path = corpus_of(tmp_path / "corpus.jsonl", ["alpha", "beta"])

    def indexes() -> dict[Path, int]:
        return {place: place.stat().st_mtime_ns for place in tmp_path.iterdir() if place.is_dir()}

    assert await searching(path, "beta") == [1]
    first = indexes()
    assert len(first) == 1
    assert await searching(path, "beta") == [1]
    assert indexes() == first
    corpus_of(path, ["beta", "alpha"])
    assert await searching(path, "beta") == [0]
    assert len(indexes()) == 2
    elsewhere = tmp_path / "elsewhere" / "linked.jsonl"
    elsewhere.parent.mkdir()
    elsewhere.symlink_to(path)
    assert await searching(elsewhere, "beta") == [0]
    assert len([place for place in elsewhere.parent.iterdir() if place.is_dir()]) == 1


async def test_concurrent_builders_share_one_index(tmp_path: Path) -> None:
    path = corpus_of(tmp_path / "corpus.jsonl", [f"w{number}" for number in range(200)])
    found_by = await asyncio.gather(*(searching(path, "w7") for _ in range(4)))
    assert found_by == [[7]] * 4
    assert len([place for place in tmp_path.iterdir() if place.is_dir()]) == 1


async def test_an_index_is_mapped_and_not_read(tmp_path: Path) -> None:
    tool = Bm25Tool(Bm25Options(corpus=str(corpus_of(tmp_path / "corpus.jsonl", ["alpha"]))))
    await tool.start(RunContext())
    assert tool._index is not None
    assert isinstance(tool._index._starts, np.memmap)
    assert isinstance(tool._index._ranking.scores["data"], np.memmap)
    await tool.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read as a corpus"),
        ('{"contents": "fine"}\n{"contents": 3}\n', "line 2: a passage needs the field 'contents', or 'title' and 'te"),
        ('{"contents": "fine"}\n[1]\n', "line 2: a passage needs"),
        ('\n{"contents: "', "line 2: invalid JSON"),
        ('{"contents": "fine"}\n' + "[" * 100_000, "line 2: invalid JSON: nested too deeply"),
        ('{"contents": "? !"}\n', "the corpus has no words to search for"),
    ],
)
async def test_invalid_corpus_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(text)
    tool = Bm25Tool(Bm25Options(corpus=str(path)))
    with pytest.raises(DataError, match=message):
        await tool.start(RunContext())
    await tool.close()
    assert [each.name for each in tmp_path.iterdir()] == ["corpus.jsonl"]


async def test_a_place_where_no_index_can_be_kept_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    path = corpus_of(tmp_path / "corpus.jsonl", ["alpha"])
    corpus = Corpus(path)
    with pytest.raises(ConfigError, match=r"cannot be written.*link the corpus into a directory"):
        open_index(corpus, path / "below a file")
    corpus.close()


@pytest.mark.parametrize("arguments", [{}, {"query": 3}, {"query": " "}])
async def test_a_call_without_a_query_is_the_models_error(tmp_path: Path, arguments: dict[str, Any]) -> None:
    tool = Bm25Tool(Bm25Options(corpus=str(corpus_of(tmp_path / "corpus.jsonl", ["alpha"]))))
    with pytest.raises(ToolUnavailableError, match="not running"):
        await tool.call({"query": "alpha"})
    await tool.start(RunContext())
    assert (await tool.call(arguments)).error == "TypeError"
    await tool.close()
