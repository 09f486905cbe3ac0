"""vLLM on a GPU as torl's engine: its memory in each state, and that cached blocks change no token."""

from pathlib import Path
from typing import Any

import pytest
import torch

from engine_checks import assert_what_is_held_changes_no_token, moved_through_its_states
from engines import make_engine
from models import write_shape
from tiny_model import build_tiny_model, prompt_text
from torl.components.hub.shape import ModelShape
from torl.components.text.tokenizer import load_tokenizer
from weight_sending import sending

OPTIONS: dict[str, Any] = {
    "dtype": "bfloat16",
    "cpu_threads": None,
    "gpu_memory_utilization": 0.5,
    "sleep_while_learning": True,
}


def used_bytes() -> int:
    """On the first GPU, by whichever process."""
    free, total = torch.cuda.mem_get_info(0)
    return total - free


@pytest.mark.timeout(900)
async def test_engine_memory_matches_ledger_in_each_state(tmp_path: Path) -> None:
    model = write_shape(tmp_path / "model", hidden=1536, intermediate=8960, layers=28, heads=12, groups=2)
    there = used_bytes()
    engine = make_engine(model, tmp_path / "engine.log", **OPTIONS)
    await engine.start()
    try:
        found = await moved_through_its_states(
            engine,
            range(100, 200),
            lambda: used_bytes() - there,
            lambda: sending(model, tmp_path, "--transport", "cuda_ipc", "--bucket-bytes", str(256 << 20)),
        )
    finally:
        await engine.close()
    book = engine._options.memory(ModelShape.read(model), torch.cuda.mem_get_info(0)[1])
    assert found["asleep"] <= sum(book.asleep().values()), found
    # vLLM's other buffers return together with the weights.
    with_weights = book.with_weights()
    assert 0.95 * book.weights <= found["weights"] - found["asleep"], found
    assert found["weights"] <= sum(with_weights.values()) - with_weights["transfer"], found
    assert book.weights + book.cache <= found["awake"] <= 1.05 * book.share, found
    assert found["awake again"] == pytest.approx(found["awake"], rel=0.02), found


@pytest.mark.timeout(900)
async def test_retained_blocks_change_no_token(tmp_path: Path) -> None:
    """Sampled by a model that has been trained to call Python: its most likely tokens have no equals."""
    model = build_tiny_model(tmp_path / "model")
    tokenizer = load_tokenizer(model)
    prompts = [
        tokenizer.encode(prompt_text(first, 3 * first % 37 + 2), add_special_tokens=False) for first in range(3, 19)
    ]
    observation = tokenizer.encode("\n12\n```\n", add_special_tokens=False)
    engine = make_engine(model, tmp_path / "engine.log", **OPTIONS)
    await engine.start()
    try:
        await assert_what_is_held_changes_no_token(engine, prompts, observation)
    finally:
        await engine.close()
