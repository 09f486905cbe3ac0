"""Transports: four ways to send bytes from a learner rank to its engine workers."""

from collections.abc import Callable

import torch

from torl.components.weights.control import Control
from torl.components.weights.rendezvous import TransportName
from torl.components.weights.transports.gloo import Gloo, Nccl
from torl.components.weights.transports.shared_memory import CudaIpc, SharedMemory
from torl.components.weights.transports.transport import Transport

TRANSPORTS: dict[TransportName, Callable[[Control, torch.device | None], Transport]] = {
    "gloo": Gloo,
    "shared_memory": SharedMemory,
    "cuda_ipc": CudaIpc,
    "nccl": Nccl,
}
