"""Engines with the settings of the tests."""

from pathlib import Path
from typing import Any

from torl.components.engine import EngineSetup, VllmEngine, VllmReplicas
from torl.components.engine.vllm.options import VllmOptions

MAX_MODEL_TOKENS = 640


def make_engine(model: Path, log_path: Path, **settings: Any) -> VllmEngine:
    """An engine with the tests' settings, not yet started."""
    return VllmEngine(*_described(model, log_path, settings))


def make_replicas(model: Path, log_path: Path, **settings: Any) -> VllmReplicas:
    """Engines side by side with the tests' settings, not yet started."""
    return VllmReplicas(*_described(model, log_path, settings))


def _described(model: Path, log_path: Path, settings: dict[str, Any]) -> tuple[EngineSetup, VllmOptions]:
    from torl.components.text.tokenizer import load_tokenizer, stop_token_ids
    from torl.components.text.vocabulary import build_vocabulary

    tokenizer = load_tokenizer(model)
    setup = EngineSetup(
        model=model,
        vocabulary=build_vocabulary(tokenizer),
        max_model_tokens=MAX_MODEL_TOKENS,
        stop_token_ids=tuple(stop_token_ids(model, tokenizer)),
        log_path=log_path,
        head_dtype=settings.pop("head_dtype", None),
        stall_timeout_seconds=settings.pop("stall_timeout_seconds", 900.0),
        max_restarts=settings.pop("max_restarts", 3),
    )
    options = {"dtype": "float32", "max_sequences": 256, "cpu_threads": 1, "cpu_kv_cache_gib": 0.25, **settings}
    return setup, VllmOptions.model_validate(options)
