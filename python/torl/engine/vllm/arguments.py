"""What vLLM is told: its engine arguments, and the environment of its processes."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torl.engine.protocol import EngineSetup
from torl.engine.vllm.options import VllmOptions
from torl.errors import ConfigError
from torl.options import suggestion

_WORKER_EXTENSION = "torl.engine.vllm.worker.WeightReceiver"
# On a CPU vLLM would put a lone worker into a process of its own (only to bind its threads, which is not done here) and
# then spin in the core while that works: a third of the start, and up to half of the CPU time of a token.
_IN_CORE_EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
_CPU_BLOCK_SIZE = 32  # the CPU kernels take multiples of 32; a small one keeps short second turns cached
_CPU_BATCH_TOKENS = 4096
_GPU_BATCH_TOKENS = 16384  # vLLM's own default knows the GPU only where its command line started it, and is 2048 here
# Models all of whose state is parameters, which are sent. What others keep besides has to be read.
_SENT_WHOLE = {"llama", "mistral", "qwen2", "qwen3"}
# What launches jobs sets these for a process group of its own; vLLM would take them for its own.
_LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def engine_arguments(
    setup: EngineSetup, options: VllmOptions, devices: Sequence[int], *, on_cpu: bool, known: Sequence[str]
) -> dict[str, Any]:
    """Arguments for vLLM's `AsyncEngineArgs`, whose fields are `known`; an engine on GPUs has these `devices`.

    Raises:
        ConfigError: `options.arguments` holds what vLLM does not know or torl sets itself.
    """
    own = _own_arguments(setup, options, devices, on_cpu)
    for name in options.arguments:
        if name in own or name in ("scheduler_cls", "additional_config", "logging_config"):
            raise ConfigError(f"engine.arguments.{name}: torl sets it itself")
        if name not in known:
            raise ConfigError(f"engine.arguments.{name}: vLLM has no such argument{suggestion(name, known)}")
    return _default_arguments(setup, options, on_cpu) | options.arguments | own


def _default_arguments(setup: EngineSetup, options: VllmOptions, on_cpu: bool) -> dict[str, Any]:
    """What `options.arguments` may say otherwise."""
    loading = {} if setup.load_weights or not _is_sent_whole(setup.model) else {"load_format": "dummy"}
    if not on_cpu:
        return loading | {"max_num_batched_tokens": max(_GPU_BATCH_TOKENS, options.max_sequences)}
    batch_tokens = max(_CPU_BATCH_TOKENS, setup.max_model_tokens, options.max_sequences)
    return loading | {"block_size": _CPU_BLOCK_SIZE, "max_num_batched_tokens": batch_tokens}


def _is_sent_whole(model: Path) -> bool:
    """Whether an engine that has been sent all parameters holds what one holds that has read the model's files."""
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # vLLM says what is wrong with it
    return config.get("model_type") in _SENT_WHOLE and "quantization_config" not in config


def _own_arguments(setup: EngineSetup, options: VllmOptions, devices: Sequence[int], on_cpu: bool) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": str(setup.model),
        "skip_tokenizer_init": True,  # ids in, ids out
        "generation_config": "vllm",  # no sampling defaults from the model's directory
        "dtype": options.dtype,
        "seed": setup.seed,
        "max_model_len": setup.max_model_tokens,
        "max_num_seqs": options.max_sequences,
        "tensor_parallel_size": options.tensor_parallel,
        "enable_prefix_caching": True,
        "scheduling_policy": "priority",  # an episode that continues comes before one that begins
        "logprobs_mode": "processed_logprobs",  # after temperature, as the trainer computes them
        "max_logprobs": 1,
        "enforce_eager": options.enforce_eager or on_cpu,
        "worker_extension_cls": _WORKER_EXTENSION,
    }
    if setup.head_dtype is not None:
        arguments["hf_overrides"] = {"head_dtype": setup.head_dtype}
    if options.tensor_parallel > 1:
        arguments["distributed_executor_backend"] = "mp"  # in an actor of Ray vLLM would start actors of its own
    if on_cpu:
        arguments |= {
            "kv_cache_memory_bytes": options.cpu_kv_cache_gib << 30,
            # A seeded request whose prompt is cut in two ends the CPU worker ("CPU Generator does not use offset").
            "enable_chunked_prefill": False,
        }
        if options.tensor_parallel == 1:
            arguments["distributed_executor_backend"] = _IN_CORE_EXECUTOR
    else:
        arguments |= {
            "device_ids": [*devices],
            "gpu_memory_utilization": options.gpu_memory_utilization,
            "enable_sleep_mode": bool(options.sleep_while_learning),
        }
    return arguments


def socket_variables(directory: Path) -> dict[str, str]:
    """Variables that make vLLM put its sockets into `directory`."""
    return {"VLLM_RPC_BASE_PATH": str(directory)}


def process_environment(
    options: VllmOptions, directory: Path, cores: Sequence[int], *, on_cpu: bool
) -> Mapping[str, str | None]:
    """The variables of the engine's processes; None unsets one. What they leave behind goes to `directory`.

    An engine on a CPU computes with a thread on each of `cores`, or on as many as it likes where there are none.
    """
    environment: dict[str, str | None] = dict.fromkeys(_LAUNCHER_VARIABLES)
    environment |= {
        **socket_variables(directory),
        "TMPDIR": os.fspath(directory),
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if on_cpu:
        # Eager: compiling small kernels for a CPU costs more than it saves. Unbound and without busy waiting:
        # learner and sandbox share the cores.
        environment |= {
            "TORCHDYNAMO_DISABLE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        if threads := options.cpu_threads or len(cores) // options.tensor_parallel:
            environment["OMP_NUM_THREADS"] = str(threads)
    return environment
