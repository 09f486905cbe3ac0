"""`side_by_side.py NAME=COMMAND ...`: runs shell commands at once and shows what each is doing.

Every line that a command writes is passed on with the time since the start and the command's name; when all are silent
for a while, a line says which are still at work. The first command that fails stops the others, its last lines are
shown again, and the exit status is its own.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence

HEARTBEAT_SECONDS = 20.0
LINES_SHOWN_AGAIN = 20
GRACE_SECONDS = 5.0


class Command:
    """Run `NAME=COMMAND` in a separate process group, whose output goes line by line into `events`.

    After its last line it puts None there.
    """

    def __init__(self, argument: str, events: "queue.Queue[tuple[Command, str | None]]") -> None:
        self.name, _, line = argument.partition("=")
        self.tail: deque[str] = deque(maxlen=LINES_SHOWN_AGAIN)
        self.process = subprocess.Popen(
            line,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
        )
        threading.Thread(target=self._read, args=(events,), daemon=True).start()

    def _read(self, events: "queue.Queue[tuple[Command, str | None]]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            events.put((self, line.rstrip()))
        events.put((self, None))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command and all that it started; nothing if they have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def main(arguments: Sequence[str]) -> int:
    """Run the commands; returns 0 if all succeeded, else the status of the first that did not."""
    start = time.monotonic()
    events: queue.Queue[tuple[Command, str | None]] = queue.Queue()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    running = [Command(argument, events) for argument in arguments]
    width = max((len(command.name) for command in running), default=0)

    def show(name: str, text: str) -> None:
        seconds = int(time.monotonic() - start)
        print(f"{seconds // 60:3}:{seconds % 60:02} {name:{width}} | {text}", flush=True)

    try:
        while running:
            try:
                command, line = events.get(timeout=HEARTBEAT_SECONDS)
            except queue.Empty:
                for command in running:
                    show(command.name, f"still at work; last: {command.tail[-1] if command.tail else 'nothing yet'}")
                continue
            if line is not None:
                if line:
                    command.tail.append(line)
                    show(command.name, line)
                continue
            running.remove(command)
            status = command.process.wait()
            show(command.name, "done" if status == 0 else f"failed with status {status}")
            if status != 0:
                stop(running)
                print("\n".join([f"{command.name} failed; its last lines:", *command.tail]), file=sys.stderr)
                return status if status > 0 else 128 - status
        return 0
    except KeyboardInterrupt:
        return 130
    finally:
        stop(running)


def stop(commands: Sequence[Command]) -> None:
    """End the commands: ask first, then insist."""
    for command in commands:
        command.signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for command in commands:
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.process.wait(max(0.0, deadline - time.monotonic()))
        command.signal(signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
