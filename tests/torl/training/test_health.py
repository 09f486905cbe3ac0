"""Stopping a run after a step: an engine that samples from another model than the learner trains."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_families import write_family
from torl.base.errors import EngineError
from torl.run.config import LoraConfig, TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records.metric_names import LOGPROB_GAP_ON_POLICY, LOGPROB_GAP_PROBE
from torl.training.health import PolicyComparison

FLOAT32 = {"engine.dtype": "float32", "learner.dtype": "float32"}
BFLOAT16 = {"engine.dtype": "bfloat16", "learner.dtype": "bfloat16"}
FP8_CACHE = {"engine.arguments": {"kv_cache_dtype": "fp8"}}
STALE_CACHE = {
    "rollout.max_staleness": 1,
    "engine.on_weight_update": "keep",
    "algorithm.importance_correction": "tis",
}


def comparison(overrides: dict[str, Any], *, on_gpus: bool = False, first_gap: float | None = None) -> PolicyComparison:
    config = load_config(TrainConfig, find_config("demo"), overrides)
    first_gaps = {} if first_gap is None else {LOGPROB_GAP_ON_POLICY: first_gap}
    return PolicyComparison(config, on_gpus=on_gpus, first_gaps=first_gaps)


def feed(check: PolicyComparison, *gaps: float | None, name: str = LOGPROB_GAP_ON_POLICY) -> list[str | None]:
    """The warning of each step."""
    return [check.require_match(step, {} if gap is None else {name: gap}) for step, gap in enumerate(gaps)]


@pytest.mark.parametrize(
    ("settings", "healthy", "wrong"),
    [
        (FLOAT32, [3e-7], 0.062),
        (FLOAT32, [3e-7, 1.9e-4], 2.1e-4),
        (FLOAT32, [], 2e-3),
        (FLOAT32, [None, 1e-6], math.nan),
        (BFLOAT16, [0.008, 0.011, 0.019], 0.041),
        (BFLOAT16, [0.03, 0.1], 0.16),
        (BFLOAT16, [], 0.11),
        (FLOAT32 | {"engine.dtype": "bfloat16"}, [0.01], 0.06),
        (FLOAT32 | {"learner.max_logprob_gap": 1e-6}, [3e-7], 1.1e-6),
        (FLOAT32 | {"rollout.top_p": 0.9, "learner.max_logprob_gap": 0.1}, [0.05], 0.11),
        (FLOAT32, [6e-7], 0.02),
        (BFLOAT16, [0.01], 0.06),
        (BFLOAT16 | FP8_CACHE, [0.02], 0.11),
        (FLOAT32 | FP8_CACHE, [0.02], 0.11),
    ],
)
def test_gap_beyond_rounding_stops_the_run_in_its_step(
    settings: dict[str, Any], healthy: list[float | None], wrong: float
) -> None:
    check = comparison(settings)
    feed(check, *healthy)
    with pytest.raises(EngineError, match=f"step {len(healthy) + 1}: engine and learner hold different policies"):
        check.require_match(len(healthy), {LOGPROB_GAP_ON_POLICY: wrong})


def test_slow_drift_from_the_first_gap_stops_the_run() -> None:
    """An engine that keeps the first weights: in bfloat16, a single step may be smaller than rounding."""
    with pytest.raises(EngineError, match=r"step 7: .*0\.058 nats.*the first was 0\.01, .* 0\.05 \(bfloat16\)"):
        feed(comparison(BFLOAT16), 0.01, 0.011, 0.014, 0.02, 0.03, 0.043, 0.058)


def test_resumed_run_is_compared_with_its_first_step() -> None:
    feed(comparison(BFLOAT16, first_gap=0.03), 0.14)
    with pytest.raises(EngineError, match=r"the first was 0\.01"):
        feed(comparison(BFLOAT16, first_gap=0.01), 0.06)


@pytest.mark.parametrize(
    ("settings", "gaps"),
    [
        (FLOAT32, [3e-7, None, 1.9e-4, 5e-7]),
        (BFLOAT16, [0.09, 0.2, 0.4]),
        (FLOAT32 | {"rollout.top_p": 0.9}, [3e-7, 0.5]),
        (FLOAT32 | STALE_CACHE, [3e-7, 0.01]),
        (FLOAT32 | {"learner.max_logprob_gap": 1.0}, [3e-7, 0.9]),
        (FLOAT32 | FP8_CACHE, [0.05, 0.02, 0.06]),
        (BFLOAT16 | {"engine.arguments": {"quantization": "fp8_per_tensor"}}, [0.2, 0.3]),
    ],
    ids=[
        "rounding",
        "a model that rounds more",
        "truncated distribution",
        "stale cache",
        "configured limit",
        "quantized cache",
        "quantized weights",
    ],
)
def test_expected_gap_continues(settings: dict[str, Any], gaps: list[float | None]) -> None:
    feed(comparison(settings), *gaps)


@pytest.mark.parametrize("settings", [{"rollout.top_p": 0.9}, STALE_CACHE, {}], ids=["top_p", "stale cache", "exact"])
def test_probe_is_compared_in_every_run(settings: dict[str, Any]) -> None:
    """Its first gap is its own: a batch of another distribution says nothing about it."""
    check = comparison(FLOAT32 | settings, first_gap=0.1)
    feed(check, 3e-7, 1.9e-4, name=LOGPROB_GAP_PROBE)
    with pytest.raises(
        EngineError, match=r"step 3: .*by 0\.0061 nats .* the first was 3e-07, and the limit is 0\.0002"
    ):
        check.require_match(2, {LOGPROB_GAP_PROBE: 0.0061, LOGPROB_GAP_ON_POLICY: 0.0})


def test_first_gap_above_rounding_is_a_warning() -> None:
    """Before the first transfer, the model may be the reason, as with experts; the run continues with its own limit."""
    first, second = feed(comparison(BFLOAT16), 0.06, 0.07)
    assert first is not None
    assert "step 1: engine and learner differ by 0.06 nats" in first
    assert second is None
    assert feed(comparison(BFLOAT16), 0.019) == feed(comparison(FLOAT32), 1.9e-4) == [None]
    assert feed(comparison(FLOAT32 | {"learner.max_logprob_gap": 1.0}), 0.5) == [None]


def test_float32_on_gpus_may_round_to_tf32() -> None:
    feed(comparison(FLOAT32, on_gpus=True), 1e-3, 2e-3)
    with pytest.raises(EngineError, match="float32"):
        feed(comparison(FLOAT32), 1e-4, 2e-3)


# --- faults of an engine, computed by plain transformers --------------------------------------------------------------


def _stale(model: Any) -> None:
    """One optimizer step, of which the engine knows nothing."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1e-3 * torch.randn_like(parameter).sign())


def _permuted_experts(model: Any) -> None:
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("0.mlp.experts.down_proj"):
                parameter.copy_(parameter[[1, 0, 2, 3]])


def _adapter(model: Any) -> None:
    """A trained adapter, which the engine ignores."""
    import torch

    from torl.learner.model.lora import add_adapters

    add_adapters(model, LoraConfig(rank=2, alpha=4, target_modules=("q_proj",)), 0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.fill_(0.01)


@pytest.mark.parametrize("fault", [_stale, _permuted_experts, _adapter])
def test_fault_of_the_engine_stops_the_run_in_its_step(fault: Callable[[Any], None], tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(write_family("qwen3_moe", tmp_path)).eval()
    ids = torch.randint(0, 384, (4, 64), generator=torch.Generator().manual_seed(0))

    def logprobs() -> np.ndarray[Any, np.dtype[np.float32]]:
        with torch.no_grad():
            rows = model(ids).logits[:, :-1].log_softmax(-1)
        found: np.ndarray[Any, np.dtype[np.float32]] = rows.gather(-1, ids[:, 1:, None]).numpy()
        return found

    engine = logprobs()
    check = comparison(FLOAT32)
    check.require_match(0, {LOGPROB_GAP_ON_POLICY: float(np.abs(engine - logprobs()).mean())})
    fault(model)
    with pytest.raises(EngineError, match=r"step 2: .*causes: weights or adapters that did not reach the engine"):
        check.require_match(1, {LOGPROB_GAP_ON_POLICY: float(np.abs(engine - logprobs()).mean())})
