"""The memory of an engine on the devices of a run, by which the run is placed and refused if it cannot fit."""

from abc import ABC, abstractmethod
from typing import TypeAlias

Bytes: TypeAlias = dict[str, int]
"""Bytes by purpose."""


class EngineMemory(ABC):
    """Bytes of one tensor-parallel worker of an engine, on its GPU or in CPU memory."""

    @property
    @abstractmethod
    def weights(self) -> int:
        """Bytes of the weights."""

    @property
    @abstractmethod
    def token_bytes(self) -> int:
        """Bytes of a token's keys and values."""

    @property
    @abstractmethod
    def share(self) -> int:
        """Bytes that the cache is a part of, as a shortage is reported."""

    @property
    @abstractmethod
    def cache(self) -> int:
        """Bytes for keys and values. Negative if the weights do not fit."""

    @property
    def cache_tokens(self) -> int:
        """Number of tokens that the cache of one engine holds."""
        return max(0, self.cache) // self.token_bytes

    @abstractmethod
    def awake(self) -> Bytes:
        """Return the bytes of an engine that samples."""

    @abstractmethod
    def asleep(self) -> Bytes:
        """Return the bytes of an engine that sleeps."""

    @abstractmethod
    def with_weights(self) -> Bytes:
        """Return the bytes of an engine that receives weights, before it allocates its cache."""
