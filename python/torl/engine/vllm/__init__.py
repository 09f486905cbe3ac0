"""The engine "vllm"."""
