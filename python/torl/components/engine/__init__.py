"""Inference engines: their protocol, and vLLM."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from torl.components.engine.memory import EngineMemory
from torl.components.engine.protocol import Engine, EngineOptions, EngineSetup, Installation, LocalEngineOptions
from torl.components.engine.vllm.engine import VllmEngine
from torl.components.engine.vllm.replicas import VllmReplicas

ENGINES: Final[Mapping[str, type[Engine]]] = MappingProxyType({"vllm": VllmReplicas})
"""The engines by their names in a configuration."""

__all__ = [
    "ENGINES",
    "Engine",
    "EngineMemory",
    "EngineOptions",
    "EngineSetup",
    "Installation",
    "LocalEngineOptions",
    "VllmEngine",
    "VllmReplicas",
]
