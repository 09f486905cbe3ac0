"""vLLM's scheduler without an engine and a model, as vLLM's own tests drive it: for `scheduler.py` and for tests."""

import pickle
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from torl._core import Vocabulary
from torl.base.types import TurnRequest
from torl.components.engine.vllm.messages import sampling_params
from torl.components.engine.vllm.process_setup import ProcessSetup

BLOCK = 16  # tokens, vLLM's default on a GPU
STOP = 0
VOCABULARY = Vocabulary([b"", *(bytes([value]) for value in range(1, 256))])


def make_scheduler(
    kind: Any, model: Path, limits: Mapping[str, int], *, blocks: int, is_async: bool, runner_v2: bool
) -> Any:
    """Make a scheduler with one kind of layer.

    Args:
        kind: Class of the scheduler: torl's or vLLM's.
        model: Directory of a model, of which only the configuration is read.
        limits: vLLM's `max_model_len`, `max_num_seqs` and `max_num_batched_tokens`.
        blocks: Number of blocks of the cache.
        is_async: Whether the scheduler schedules a step while the last one runs.
        runner_v2: Whether it works for the second version of vLLM's model runner.
    """
    config = AsyncEngineArgs(
        model=str(model),
        skip_tokenizer_init=True,
        dtype="float32",
        enable_chunked_prefill=True,
        enable_prefix_caching=True,
        scheduling_policy="priority",
        block_size=BLOCK,
        enforce_eager=True,
        kv_cache_memory_bytes=1 << 20,
        **limits,  # type: ignore[arg-type]
    ).create_engine_config()
    config.scheduler_config.async_scheduling = is_async
    config.scheduler_config.enable_chunked_prefill = True
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    init_none_hash(sha256)
    with tempfile.NamedTemporaryFile() as vocabulary:
        vocabulary.write(pickle.dumps(VOCABULARY))
        vocabulary.flush()
        config.additional_config = ProcessSetup("", {}, vocabulary.name, "/nowhere")
        scheduler = kind(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK,
            log_stats=False,
        )
    scheduler.use_v2_model_runner = runner_v2
    return scheduler


def make_request(turn: TurnRequest, *, priority: int = 0, cache_salt: str | None = None) -> Request:
    """Make vLLM's request of a turn."""
    hasher = get_request_block_hasher(BLOCK, sha256)
    parameters = sampling_params(turn, [STOP])
    return Request(
        turn.id, [*turn.prefix], parameters, None, priority=priority, cache_salt=cache_salt, block_hasher=hasher
    )
