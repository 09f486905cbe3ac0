"""The learner: packed rows, a DeepSpeed engine on any number of ranks, checkpoints, weights for the engine.

`Learner` (in `torl.learner.learner`) is the controller's interface and loads no torch. The ranks are separate processes
(`python -m torl.learner.worker`). The learner is independent of tools: only the loss mask matters.
"""
