"""The engine "vllm": as many of vLLM's engines as are configured, each on its own devices."""

from dataclasses import replace

from torl.engine.protocol import EngineSetup
from torl.engine.replicas import Replicas
from torl.engine.vllm.engine import VllmEngine
from torl.engine.vllm.options import VllmOptions


class VllmReplicas(Replicas):
    """vLLM engines side by side."""

    def __init__(self, setup: EngineSetup, options: VllmOptions) -> None:
        """Describe the engines; `start` starts them."""
        super().__init__(
            lambda number, loads: VllmEngine(replace(setup, loads_weights=loads), options, number=number),
            options.engines,
            restarts=options.restarts,
            policy_version=setup.policy_version,
            lends_devices=bool(options.sleep_while_learning),
            loads_weights=setup.loads_weights,
        )
