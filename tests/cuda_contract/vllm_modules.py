"""The vLLM modules that torl's engine builds on, and their hashes in the wheel for CUDA.

On another version of vLLM, record the hashes of its wheel, read what has changed, and run the tests:

    pip download --no-deps vllm==VERSION
    python tests/cuda_contract/vllm_modules.py vllm-VERSION-*.whl > tests/cuda_contract/vllm_modules.sha256
    git diff tests/cuda_contract
"""

import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from zipfile import ZipFile

HASHES = Path(__file__).with_suffix(".sha256")
MODULES = (
    "config/logging",
    "device_allocator/__init__",
    "device_allocator/alloc_conf",
    "device_allocator/cumem",
    "device_allocator/sleep_mode_backend",
    "engine/arg_utils",
    "inputs/engine",
    "model_executor/layers/vocab_parallel_embedding",
    "model_executor/model_loader/reload/layerwise",
    "outputs",
    "sampling_params",
    "v1/core/block_pool",
    "v1/core/kv_cache_coordinator",
    "v1/core/kv_cache_manager",
    "v1/core/kv_cache_utils",
    "v1/core/sched/async_scheduler",
    "v1/core/sched/interface",
    "v1/core/sched/output",
    "v1/core/sched/scheduler",
    "v1/core/single_type_kv_cache_manager",
    "v1/engine/__init__",
    "v1/engine/async_llm",
    "v1/engine/core",
    "v1/engine/core_client",
    "v1/engine/exceptions",
    "v1/executor/abstract",
    "v1/executor/multiproc_executor",
    "v1/executor/uniproc_executor",
    "v1/metrics/stats",
    "v1/outputs",
    "v1/request",
    "v1/sample/ops/topk_topp_sampler",
    "v1/worker/gpu/model_runner",
    "v1/worker/gpu/sample/gumbel",
    "v1/worker/gpu/sample/logprob",
    "v1/worker/gpu/sample/sampler",
    "v1/worker/gpu/sample/states",
    "v1/worker/gpu_worker",
    "v1/worker/worker_base",
)
"""Modules whose classes torl overrides, calls or relies on, below the package, without their suffix."""


def installed_package() -> Path:
    """Return the directory of the installed vLLM, without importing it."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def installed_hashes() -> dict[str, str]:
    """Return the SHA-256 of each module of the installed vLLM, by its path."""
    package = installed_package()
    return {f"vllm/{name}.py": hashlib.sha256((package / f"{name}.py").read_bytes()).hexdigest() for name in MODULES}


def recorded_hashes() -> dict[str, str]:
    """Return the recorded SHA-256 of each module of the wheel for CUDA, by its path."""
    lines = HASHES.read_text(encoding="ascii").splitlines()
    return {path: digest for digest, path in (line.split() for line in lines if not line.startswith("#"))}


def recorded_version() -> str:
    """Return the version of the wheel whose hashes are recorded."""
    return HASHES.read_text(encoding="ascii").splitlines()[0].removeprefix("# vllm ")


def main() -> None:
    """Print the hashes of the modules in a wheel."""
    path = Path(sys.argv[1])
    version = re.match(r"vllm-([^-]+)-", path.name)
    assert version is not None, f"{path.name} is not a wheel of vllm"
    with ZipFile(path) as wheel:
        print(f"# vllm {version[1]}")
        for name in MODULES:
            print(f"{hashlib.sha256(wheel.read(f'vllm/{name}.py')).hexdigest()}  vllm/{name}.py")


if __name__ == "__main__":
    main()
