"""The demo's problems and its base model: `torl:demo/problems/train.jsonl`, `torl:demo/base_model`."""
