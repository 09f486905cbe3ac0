"""A model without the habit of calling learns from rewards after a warm start, and not without one. Minutes."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks import settings_words
from benchmarks.demo import chat
from cli import ROOT
from demo_maker.chat import conversation

STEPS = 50
# Enough to forget calling, but not the copying of a result, without which no reward is for a call.
FORGOTTEN, SHOWN = 800, 300
MESSAGE = re.compile(r"(?<=<\|im_start\|>assistant\n)(.*?<\|im_end\|>)", re.DOTALL)
FINETUNE = {
    "finetune.batch_size": "24",
    "learner.learning_rate": "1e-3",
    "learner.warmup_steps": "5",
    "data.evaluation": "{}",
}

pytestmark = pytest.mark.slow


def examples(seed: int, *, with_calls: bool) -> Iterator[dict[str, Any]]:
    """Conversations of the chat demo whose messages of the model are trained: all, or those without a call."""
    generator = random.Random(seed)
    while True:
        text = conversation(generator)
        if with_calls or "<tool_call>" not in text:
            parts = MESSAGE.split(text)
            yield {"segments": [{"label": place % 2 == 1, "text": part} for place, part in enumerate(parts) if part]}


def finetune(directory: Path, model: str, rows: Iterator[dict[str, Any]], *, epochs: int = 1) -> str:
    """Fine-tune a model on rows, and return the directory of the new model."""
    directory.mkdir(parents=True)
    file = directory / "examples.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = FINETUNE | {
        "model.path": model,
        "finetune.train": str(file),
        "finetune.epochs": str(epochs),
        "run.directory": str(directory / "run"),
    }
    words = settings_words(chat.SETTINGS | options)
    subprocess.run([sys.executable, "-m", "torl", "finetune", "demo", *words], check=True, cwd=ROOT)
    return str(directory / "run" / "model")


def reinforced(directory: Path, problems: Mapping[str, str], model: str) -> dict[str, Any]:
    """Train a model by its rewards alone, and return the summary of the run."""
    return chat.train(directory, {**problems, **chat.SETTINGS, "model.path": model, "run.steps": str(STEPS)})


@pytest.mark.timeout(1800)
def test_rewards_teach_calling_after_a_warm_start_only(tmp_path: Path) -> None:
    problems = chat.prepare(tmp_path)
    guessing = finetune(tmp_path / "guessing", problems["model.path"], islice(examples(1, with_calls=False), FORGOTTEN))
    alone = reinforced(tmp_path / "alone", problems, guessing)
    assert alone["code_ratio_before"] < 0.01
    assert alone["code_ratio_after"] < 0.02
    assert alone["accuracy_after"] < 0.25, "a guess is right once in seven times"
    warm = finetune(tmp_path / "warm", guessing, islice(examples(2, with_calls=True), SHOWN), epochs=8)
    helped = reinforced(tmp_path / "helped", problems, warm)
    assert helped["code_ratio_before"] > 0.1
    assert helped["accuracy_after"] > max(helped["accuracy_before"], alone["accuracy_after"]) + 0.3
    assert helped["code_ratio_after"] > 0.7
