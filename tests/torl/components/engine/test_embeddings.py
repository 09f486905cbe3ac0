"""An engine with a large vocabulary: one packed copy of its head and none of its embedding, also with new weights."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen2Config

from engines import make_engine
from torl.base.types import SamplingParameters, TurnRequest
from weight_sending import sending

ROWS, WIDTH = 100_000, 256
EMBEDDING = 4 * ROWS * WIDTH
PROMPT = tuple(range(40, 72))


def write_model(directory: Path, config: PretrainedConfig, tokenizer: Path, seed: int) -> Path:
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    for file in tokenizer.glob("tokenizer*"):
        shutil.copy(file, directory)
    return directory


def memory(process: int, file: str, name: str) -> int:
    """A value of /proc in bytes."""
    lines = Path(f"/proc/{process}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


async def check_logprobs(engine: Any, model: Path) -> None:
    sampled = await engine.sample(TurnRequest("greedy", PROMPT, SamplingParameters(max_tokens=8, temperature=0.0)))
    ids = torch.tensor([[*PROMPT, *sampled.token_ids]])
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)(ids).logits[0, len(PROMPT) - 1 : -1]
    logprobs = logits.log_softmax(-1).gather(1, torch.tensor(sampled.token_ids)[:, None])[:, 0]
    assert torch.allclose(logprobs, torch.tensor(sampled.logprobs), atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "tied"), [(Qwen2Config, False), (LlamaConfig, True)])
async def test_embeddings_are_not_copied(
    tiny_model_directory, tmp_path, family: type[PretrainedConfig], tied: bool
) -> None:
    config = family(
        vocab_size=ROWS,
        hidden_size=WIDTH,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=0,
    )
    first, second = (write_model(tmp_path / str(seed), config, tiny_model_directory, seed) for seed in (1, 2))
    small, large = (make_engine(model, tmp_path / "engine.log") for model in (tiny_model_directory, first))
    await small.start()
    without = memory(small.processes[0].pid, "smaps_rollup", "Pss_Anon")
    await small.close()
    await large.start()
    try:
        process = large.processes[0].pid
        difference = memory(process, "smaps_rollup", "Pss_Anon") - without
        assert difference == pytest.approx((2 if tied else 3) * EMBEDDING, abs=EMBEDDING / 2)  # one is the packed head
        await check_logprobs(large, first)
        before = memory(process, "status", "VmRSS")
        Path(f"/proc/{process}/clear_refs").write_text("5")  # resets the peak
        async with sending(second, tmp_path, "--bucket-bytes", str(1 << 20)) as (rendezvous, _):
            await large.receive_weights(rendezvous, 1)
        # Two tensors that were put together from buckets: the sender sends head and embedding in a row.
        assert memory(process, "status", "VmHWM") - before < 2.5 * EMBEDDING
        assert memory(process, "status", "VmRSS") - before < 0.5 * EMBEDDING
        await check_logprobs(large, second)
    finally:
        await large.close()
