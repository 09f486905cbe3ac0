"""Programs that run inside the sandbox with a model's program, or with the tests of a problem.

They import the standard library alone. `torl.components.programs.harness` compiles them there, once for each judge.
"""
