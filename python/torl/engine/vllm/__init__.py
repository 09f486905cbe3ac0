"""vLLM behind the `Engine` protocol: the only package that imports vLLM."""
