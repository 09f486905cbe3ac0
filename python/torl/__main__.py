"""The command `torl COMMAND ...`, also `python -m torl COMMAND ...`."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Final

from torl.base.errors import ConfigError
from torl.base.plugins import COMMANDS, load_function, load_plugin, plugins, subject
from torl.base.trust import NOT_TRUSTED, import_from_here, importing_nothing_from_here, reading
from torl.base.version import __version__
from torl.commands.command import Command, Files, reports_errors
from torl_sandbox.output import ends_with_its_reader

OWN: Final[Mapping[str, Command]] = {
    "train": Command("torl.commands.launch:train", "train a model", Files.OWN),
    "finetune": Command("torl.commands.launch:finetune", "fine-tune a model on examples", Files.OWN),
    "try": Command("torl.commands.launch:try_model", "measure the learning signal of an untrained model", Files.OWN),
    "sample": Command("torl.commands.launch:sample", "sample trajectories of a model into a file", Files.BOTH),
    "export": Command("torl.commands.export:main", "write the model of a checkpoint as a model directory"),
    "plan": Command("torl.commands.plan:main", "compute the memory that a run needs on each GPU", Files.BOTH),
    "sandbox": Command("torl_sandbox.__main__:main", "run untrusted Python, or serve the sandbox", Files.OWN),
    "grade": Command("torl.commands.grader:grade_pair", "compare an answer with its reference", Files.OWN),
    "grader": Command("torl.commands.grader:main", "grade for other programs", Files.OWN),
    "check": Command("torl.commands.check:main", "check this machine: devices, packages, sandbox, Hub", Files.OWN),
    "presets": Command("torl.commands.presets:main", "list the configurations that torl ships", Files.OWN),
}
"""The commands of the trainer. Installed packages add others, as torl_lab does."""


@ends_with_its_reader
@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] == "--version":
        print(__version__)
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0
    found = plugins(COMMANDS, OWN)  # for torl's own commands, too: a package that takes a name is refused
    if words[0] in OWN:
        return run(OWN[words[0]], words[1:])
    if words[0] not in found:
        raise ConfigError(f"torl {words[0]}: no such command; the commands are: {', '.join([*OWN, *found])}")
    point = found[words[0]]
    return run(load_plugin(point, Command), words[1:], point)


def run(command: Command, arguments: Sequence[str] | None = None, point: EntryPoint | None = None) -> int:
    """Run one command and return its exit status.

    Args:
        command: Command.
        arguments: Words after the command. None for those of the process.
        point: Entry point of a command that another package adds.

    Raises:
        ConfigError: The function of the other package's command cannot be called, or returns no exit status.
    """
    with ExitStack() as stack:
        if command.files is Files.OWN:
            import_from_here()
        else:
            stack.enter_context(importing_nothing_from_here())
            opened = stack.enter_context(reading(trust=False))  # until the command knows more
        if point is None:
            module, _, function = command.main.partition(":")
            main = getattr(import_module(module), function)
        else:
            main = load_function(point, command.main)
        status: object = main(arguments)
        if not isinstance(status, int):
            where = f"{subject(point)}: {command.main}" if point else command.main
            raise ConfigError(f"{where} must return an exit status, got {status!r}")
        return NOT_TRUSTED if command.files is Files.BOTH and opened.refused else status


def _usage() -> str:
    others: dict[str, list[str]] = {}
    for name, point in plugins(COMMANDS, OWN).items():
        package = point.module.partition(".")[0]
        try:
            line = _line(name, load_plugin(point, Command))
        except ConfigError as error:  # of another package, without which torl works
            line = f"  {name:<10}{error}"
        others.setdefault(package, []).append(line)
    return "\n".join(
        [
            "usage: torl COMMAND ...",
            "",
            "Reinforcement learning of language models that think with tools.",
            "",
            *(_line(name, command) for name, command in OWN.items()),
            *(line for package, lines in others.items() for line in ("", f"{package}:", *lines)),
            "",
            "Options of a command: torl COMMAND --help",
        ]
    )


def _line(name: str, command: Command) -> str:
    return f"  {name:<10}{command.description}"


if __name__ == "__main__":
    sys.exit(main())
