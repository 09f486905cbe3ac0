"""The command `torl COMMAND ...`, also `python -m torl COMMAND ...`."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from enum import Enum
from importlib import import_module

from torl.trust import NOT_TRUSTED, import_from_here, importing_nothing_from_here, reading
from torl.version import __version__


class Files(Enum):
    """The files that a command reads, which decide what their configurations may name (`torl.trust`)."""

    OWN = "the user's own files: everything that they name is imported"
    RUNS = "runs, perhaps of others: nothing but torl is imported, unless the user trusts them"
    BOTH = "either: the directory of a run is read like one, a file is the user's own"


COMMANDS = {
    "train": ("torl.commands.launch:train", "train a model", Files.OWN),
    "finetune": ("torl.commands.launch:finetune", "fine-tune a model on examples", Files.OWN),
    "try": ("torl.commands.trial:main", "say what a model offers a run to learn from, before the run", Files.OWN),
    "sweep": (
        "torl.apps.sweep.command:main",
        "train every combination of settings and seeds, with one table",
        Files.OWN,
    ),
    "sample": ("torl.commands.launch:sample", "sample trajectories of a model into a file", Files.BOTH),
    "evaluate": (
        "torl.apps.evaluation.command:main",
        "measure models on problem sets, with tables as in the papers",
        Files.BOTH,
    ),
    "verify": ("torl.apps.audit.run:main", "audit a run from its own files", Files.RUNS),
    "doctor": ("torl.apps.doctor.command:main", "name the diseases of a run, with evidence and remedies", Files.RUNS),
    "replay": (
        "torl.apps.replay.command:replay",
        "make a step of a run again and compare it with its record",
        Files.RUNS,
    ),
    "diff": ("torl.apps.replay.command:diff", "name the first difference of two runs", Files.RUNS),
    "report": ("torl.commands.report:main", "write the page of a run, or of several runs", Files.RUNS),
    "view": ("torl.apps.view.command:main", "look at runs in the browser", Files.RUNS),
    "export": ("torl.commands.export:main", "write the model of a checkpoint as a model directory", Files.RUNS),
    "convert": (
        "torl.commands.convert:main",
        "read or write trajectories in the formats of other libraries",
        Files.RUNS,
    ),
    "data": ("torl.apps.curation.command:main", "download, clean, filter and select problems", Files.BOTH),
    "plan": ("torl.plan:main", "compute the memory that a run needs on each GPU", Files.BOTH),
    "sandbox": ("torl_sandbox.__main__:main", "run untrusted Python, or serve the sandbox", Files.OWN),
    "grade": ("torl.commands.grade:main", "compare an answer with its reference", Files.OWN),
    "check": ("torl.commands.check:main", "check this machine: devices, packages, sandbox, Hub", Files.OWN),
    "presets": ("torl.commands.presets:main", "list the configurations that torl ships", Files.OWN),
}
"""Each command: its function, as "module:function", which takes the words after the command; its description; and the
files that it reads."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
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
    location, _, files = COMMANDS[command]
    module, _, function = location.partition(":")
    with ExitStack() as stack:
        if files is Files.OWN:
            import_from_here()
        else:
            stack.enter_context(importing_nothing_from_here())
            opened = stack.enter_context(reading(trust=False))  # until the command knows more
        status: int = getattr(import_module(module), function)(arguments)
        return NOT_TRUSTED if files is Files.BOTH and opened.refused else status


def _usage() -> str:
    lines = [f"  {name:<10}{description}" for name, (_, description, _) in COMMANDS.items()]
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
