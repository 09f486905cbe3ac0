"""Programs that run inside the sandbox beside a model's program or beside the tests of a problem.

They import the standard library alone. `torl.components.programs.harness` compiles them there, once for each judge.
"""
