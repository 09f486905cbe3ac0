"""Untrusted Python, run in WebAssembly by a pool of worker processes: each run in a fresh state, under hard limits."""
