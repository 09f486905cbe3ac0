"""From a configuration to the running parts that play episodes: a proven sandbox, an engine, a player."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from torl.config import EngineConfig, RolloutConfig, SandboxConfig
from torl.errors import ConfigError, DataError
from torl.rollout.episode import EpisodePlayer, EpisodeSettings
from torl.rollout.formats import make_format
from torl.rollout.slots import EpisodeSlots
from torl.rollout.tokenizer import TextEncoder, stop_token_ids
from torl.rollout.vllm_engine import VllmEngine
from torl.rollout.vocabulary import build_vocabulary
from torl.sandbox import Interpreter, SandboxPool, prepare_guest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@asynccontextmanager
async def open_sandbox(
    config: SandboxConfig, on_progress: Callable[[str, float], None] | None = None
) -> AsyncIterator[SandboxPool]:
    """Prepare the guest (once for a machine; `on_progress(stage, share done)`), start the pool and prove that it works.

    Raises:
        SandboxError: there is no guest, the workers do not start, or the self-test fails.
    """
    await asyncio.to_thread(prepare_guest, on_progress)
    pool = await asyncio.to_thread(
        lambda: SandboxPool(
            workers=config.workers,
            cpu_seconds=config.cpu_seconds,
            wall_seconds=config.wall_seconds,
            memory_bytes=config.memory_mib << 20,
            output_bytes=config.output_kib << 10,
            shared_bytes=config.shared_mib << 20,
        )
    )
    try:
        await asyncio.to_thread(pool.self_test)
        yield pool
    finally:
        await asyncio.to_thread(pool.close)


@asynccontextmanager
async def open_player(
    model: Path,
    tokenizer: "PreTrainedTokenizerFast",
    interpreter: Interpreter,
    *,
    rollout: RolloutConfig,
    engine: EngineConfig,
    max_prompt_tokens: int,
    seed: int,
    log_directory: Path,
) -> AsyncIterator[EpisodePlayer]:
    """Start the engine on `model` and yield a player; the engine is closed at the end, however that comes.

    Raises:
        EngineError: the engine did not start.
        DataError: the tokenizer has no end-of-sequence token or cannot encode observations.
    """
    vocabulary = build_vocabulary(tokenizer)
    encoder = TextEncoder(tokenizer, vocabulary)
    running = VllmEngine(
        model,
        engine,
        vocabulary=vocabulary,
        max_model_tokens=max_prompt_tokens + rollout.max_response_tokens,
        stop_token_ids=stop_token_ids(model, tokenizer),
        log_path=log_directory / "engine.log",
        seed=seed,
    )
    player = EpisodePlayer(
        engine=running,
        interpreter=interpreter,
        vocabulary=vocabulary,
        encoder=encoder,
        format=make_format(rollout, lambda text: len(encoder.encode(text))),
        settings=EpisodeSettings.from_config(rollout, seed),
        slots=EpisodeSlots(rollout.max_concurrent_episodes),
    )
    try:
        await running.start()
        yield player
    finally:
        await running.close()


def within_context(rollout: RolloutConfig, model: Path, max_prompt_tokens: int) -> RolloutConfig:
    """The settings with a response limit that the model's context window has room for.

    Raises:
        DataError: the model has no readable config.json.
        ConfigError: there is no room at all.
    """
    try:
        window = json.loads((model / "config.json").read_text(encoding="utf-8")).get("max_position_embeddings")
    except (OSError, ValueError) as error:
        raise DataError(f"{model / 'config.json'}: cannot be read: {error}") from error
    if not isinstance(window, int) or max_prompt_tokens + rollout.max_response_tokens <= window:
        return rollout
    if window <= max_prompt_tokens:
        raise ConfigError(f"{model}: its context of {window} tokens has no room after {max_prompt_tokens} of prompt")
    return rollout.model_copy(update={"max_response_tokens": window - max_prompt_tokens})
