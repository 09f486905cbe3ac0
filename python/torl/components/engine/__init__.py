"""Inference engines: their protocol, and vLLM."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from torl.components.engine.protocol import Engine, EngineOptions, EngineSetup
from torl.components.engine.vllm.engine import VllmEngine
from torl.components.engine.vllm.replicas import VllmReplicas

ENGINES: MappingProxyType[str, Callable[..., Any]] = MappingProxyType({"vllm": VllmReplicas})
"""The engines by their names in a configuration."""

__all__ = ["ENGINES", "Engine", "EngineOptions", "EngineSetup", "VllmEngine", "VllmReplicas"]
