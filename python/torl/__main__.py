"""The command `torl COMMAND ...`, also `python -m torl COMMAND ...`."""

import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import IO, Final

from torl.base.errors import ConfigError
from torl.base.plugins import COMMANDS, load_function, load_plugin, plugins, subject
from torl.base.trust import NOT_TRUSTED, import_from_here, importing_nothing_from_here, reading
from torl.base.version import __version__
from torl.commands.command import Command, Files, reports_errors

OWN: Final[Mapping[str, Command]] = {
    "train": Command("torl.commands.launch:train", "train a model", Files.OWN),
    "finetune": Command("torl.commands.launch:finetune", "fine-tune a model on examples", Files.OWN),
    "try": Command("torl.commands.trial:main", "measure the learning signal of an untrained model", Files.OWN),
    "sample": Command("torl.commands.launch:sample", "sample trajectories of a model into a file", Files.BOTH),
    "export": Command("torl.commands.export:main", "write the model of a checkpoint as a model directory"),
    "plan": Command("torl.commands.plan:main", "compute the memory that a run needs on each GPU", Files.BOTH),
    "sandbox": Command("torl_sandbox.__main__:main", "run untrusted Python, or serve the sandbox", Files.OWN),
    "grade": Command("torl.commands.grade:main", "compare an answer with its reference", Files.OWN),
    "grader": Command("torl.commands.grader:main", "grade for other programs", Files.OWN),
    "check": Command("torl.commands.check:main", "check this machine: devices, packages, sandbox, Hub", Files.OWN),
    "presets": Command("torl.commands.presets:main", "list the configurations that torl ships", Files.OWN),
}
"""The commands of the trainer. Installed packages add others, as torl_lab does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 128 + SIGPIPE if the reader of the output disconnects."""
    try:
        try:
            status = _main(sys.argv[1:] if arguments is None else arguments)
        except SystemExit:
            _flush()
            raise
        _flush()  # here, not at the exit of the interpreter, which has another status
    except (BrokenPipeError, BaseExceptionGroup) as error:
        if isinstance(error, BaseExceptionGroup) and error.subgroup(BrokenPipeError) is None:
            raise
        without_reader = [stream for stream in (sys.stdout, sys.stderr) if _has_no_reader(stream)]
        if not without_reader:  # another pipe, such as the pipe to a child process
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)  # where the rest of the buffers goes
        for stream in without_reader:
            os.dup2(nowhere, stream.fileno())
        return 128 + signal.SIGPIPE
    return status


@reports_errors
def _main(arguments: Sequence[str] | None) -> int:
    words = list(arguments or ())
    if words and words[0] == "--version":
        print(__version__)
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if words[0] in OWN:
        return run(OWN[words[0]], words[1:])
    found = plugins(COMMANDS, OWN)
    if words[0] not in found:
        raise ConfigError(f"torl {words[0]}: no such command; the commands are: {', '.join([*OWN, *found])}")
    point = found[words[0]]
    return run(load_plugin(point, Command), words[1:], point)


def _flush() -> None:
    if sys.stdout is not None:  # as it is in `torl COMMAND >&-`
        sys.stdout.flush()


def _has_no_reader(stream: IO[str] | None) -> bool:
    """Return whether the reader of an output has closed it, as in `torl COMMAND | head`."""
    if stream is None:
        return False
    output = select.poll()
    output.register(stream, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


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
