"""The groups whose tokens are recorded, and the token that opens a call."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from builders import scored, scored_group, trajectory
from torl._core import Vocabulary
from torl.base.options import load_object
from torl.base.paths import resolve_path
from torl.base.types import ScoredGroup, TrainingSample, UpdateNumbers
from torl.components.formats import FORMATS
from torl.components.text.tokenizer import PlainTextEncoder, build_vocabulary, load_tokenizer
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.training.samples import training_samples, with_advantages
from torl.training.token_records import call_opening_token, recorded_samples, token_records


def groups() -> list[ScoredGroup]:
    """Four groups of three, of which the second is uniform. The first member of the third has a branch."""
    branched = replace(trajectory("x", group="0/c"), branches=(trajectory("y", group="0/c"),))
    return [
        scored_group(*(scored(trajectory("x", group="0/a", sample=sample), sample > 0) for sample in range(3))),
        scored_group(*(scored(trajectory("x", group="0/b", sample=sample)) for sample in range(3))),
        scored_group(scored(branched, False), scored(trajectory("x", group="0/c", sample=1))),
        scored_group(*(scored(trajectory("x", group="0/d", sample=sample), sample > 1) for sample in range(3))),
    ]


def prepared(config: TrainConfig) -> list[TrainingSample]:
    members = [member for group in groups() for member in group.members]
    return with_advantages(training_samples(members), groups(), config.algorithm)


def config(token_groups: Any, seed: int = 0) -> TrainConfig:
    return load_config(TrainConfig, find_config("demo"), {"run.token_groups": token_groups, "run.seed": seed})


@pytest.mark.parametrize(("wanted", "expected"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3), ("all", 3)])
def test_whole_groups_with_an_advantage_are_recorded(wanted: Any, expected: int) -> None:
    chosen = config(wanted)
    recorded = recorded_samples(groups(), prepared(chosen), 0, chosen)
    numbers: dict[int, UpdateNumbers | None] = {
        index: UpdateNumbers(0, {"advantages": np.zeros(1, "f4")}) for index in recorded
    }
    found = token_records(groups(), numbers, {index: np.full(1, -0.5, "f4") for index in recorded})
    sizes = {"0/a": 3, "0/c": 3, "0/d": 3}  # with the branch
    names = {key.group for key in found}
    assert len(names) == expected
    assert all(sum(key.group == name for key in found) == sizes[name] for name in names)
    assert all(each.arrays.keys() == {"advantages", "call_logprobs"} for each in found.values())
    assert len(set(found)) == len(found)


def test_step_and_seed_draw_the_groups() -> None:
    drawn = {
        (step, seed): tuple(recorded_samples(groups(), prepared(config(1)), step, config(1, seed)))
        for step in range(6)
        for seed in (0, 1)
    }
    assert len(set(drawn.values())) == 3
    assert drawn[2, 0] == tuple(recorded_samples(groups(), prepared(config(1)), 2, config(1, 0)))


def test_opening_of_a_call_is_a_control_token_or_the_first_of_plain_text() -> None:
    tokenizer = load_tokenizer(resolve_path("torl:demo/base_model"))
    vocabulary = build_vocabulary(tokenizer)
    encoder = PlainTextEncoder(tokenizer, vocabulary)

    def opening(text: str | None, known: Vocabulary = vocabulary) -> int | None:
        player: Any = SimpleNamespace(format=SimpleNamespace(call_opening=text), vocabulary=known, encoder=encoder)
        return call_opening_token(player)

    assert opening(None) is None
    plain = opening("```python")
    assert plain is not None
    assert "```python".startswith(vocabulary.decode([plain]))
    tokens = [vocabulary.decode_bytes([token]) for token in range(len(vocabulary))]
    assert opening("<tool_call>", Vocabulary([*tokens, b"<tool_call>"])) == len(tokens)


def test_formats_with_a_fixed_opening_have_it() -> None:
    found = {name: load_object(each) if isinstance(each, str) else each for name, each in FORMATS.items()}
    openings = {
        name: each().call_opening for name, each in found.items() if name in ("torl", "artist", "hermes", "llama3")
    }
    assert openings == {"torl": "```python", "artist": "<python>", "hermes": "<tool_call>", "llama3": None}
