"""Playing problems: the engine protocol, vLLM behind it, and the episode loop."""
