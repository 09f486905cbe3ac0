"""The learner: packed rows, a DeepSpeed engine on any number of ranks, checkpoints, weights for the engine.

`Learner` (in `torl.learner.learner`) is what the controller talks to; it loads no torch. The ranks are
processes of their own (`python -m torl.learner.worker`). The learner knows nothing of tools: the loss mask
says all.
"""
