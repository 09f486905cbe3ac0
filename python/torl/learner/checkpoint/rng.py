"""The states of a rank's random generators."""

import io
import random
from pathlib import Path

import numpy as np
import torch


def rng_states() -> bytes:
    """All of them, as `torch.save` writes them."""
    states = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }
    buffer = io.BytesIO()
    torch.save(states, buffer)
    return buffer.getvalue()


def restore_rng_states(path: Path) -> None:
    """Put back what `rng_states` gave."""
    states = torch.load(path, weights_only=False)
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
