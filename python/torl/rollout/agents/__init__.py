"""Episodes driven by agent programs, each through its own URL of an OpenAI-compatible server."""
