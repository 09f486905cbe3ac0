"""Inference engines: the protocol that episodes ask for turns, and vLLM behind it."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from torl.engine.protocol import Engine, EngineOptions, EngineSetup
from torl.engine.vllm.engine import VllmEngine
from torl.engine.vllm.replicas import VllmReplicas

ENGINES: MappingProxyType[str, Callable[..., Any]] = MappingProxyType({"vllm": VllmReplicas})
"""By the names that a configuration calls them."""

__all__ = ["ENGINES", "Engine", "EngineOptions", "EngineSetup", "VllmEngine", "VllmReplicas"]
