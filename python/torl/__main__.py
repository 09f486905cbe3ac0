"""The command `torl COMMAND ...`, also `python -m torl COMMAND ...`."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from torl.version import __version__

COMMANDS = {
    "train": ("torl.commands.launch:train", "train a model"),
    "finetune": ("torl.commands.launch:finetune", "fine-tune a model on examples"),
    "try": ("torl.commands.trial:main", "say what a model offers a run to learn from, before the run"),
    "sweep": ("torl.apps.sweep.command:main", "train every combination of settings and seeds, with one table"),
    "sample": ("torl.commands.launch:sample", "sample trajectories of a model into a file"),
    "evaluate": (
        "torl.apps.evaluation.command:main",
        "measure models on problem sets, with tables as in the papers",
    ),
    "verify": ("torl.apps.audit.run:main", "audit a run from its own files"),
    "doctor": ("torl.apps.doctor.command:main", "name the diseases of a run, with evidence and remedies"),
    "replay": ("torl.apps.replay.command:replay", "make a step of a run again and compare it with its record"),
    "diff": ("torl.apps.replay.command:diff", "name the first difference of two runs"),
    "report": ("torl.commands.report:main", "write the page of a run, or of several runs"),
    "view": ("torl.apps.view.command:main", "look at runs in the browser"),
    "export": ("torl.commands.export:main", "write the model of a checkpoint as a model directory"),
    "convert": ("torl.commands.convert:main", "read or write trajectories in the formats of other libraries"),
    "data": ("torl.apps.curation.command:main", "download, clean, filter and select problems"),
    "plan": ("torl.plan:main", "compute the memory that a run needs on each GPU"),
    "sandbox": ("torl.sandbox.__main__:main", "run untrusted Python, or serve the sandbox"),
    "grade": ("torl.commands.grade:main", "compare an answer with its reference"),
    "check": ("torl.commands.check:main", "check this machine: devices, packages, sandbox, Hub"),
    "presets": ("torl.commands.presets:main", "list the configurations that torl ships"),
}
"""The function of each command, as "module:function", and its description. It takes the words after the command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where custom modules may be, as with `python -m`
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if words[0] == "--version":
        print(__version__)
        return 0
    if words[0] not in COMMANDS:
        print(f"error: torl {words[0]}: no such command; the commands are: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return run(words[0], words[1:])


def run(command: str, arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    module, _, function = COMMANDS[command][0].partition(":")
    status: int = getattr(import_module(module), function)(arguments)
    return status


def _usage() -> str:
    lines = [f"  {name:<10}{description}" for name, (_, description) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: torl COMMAND ...",
            "",
            "Reinforcement learning of language models that think with tools.",
            "",
            *lines,
            "",
            "Options of a command: torl COMMAND --help",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
