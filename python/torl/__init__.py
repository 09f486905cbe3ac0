"""torl: reinforcement learning of language models that think with a Python interpreter."""

__version__ = "0.1.0"
