"""Interrupts `torl.train` twice and reports what is alive when KeyboardInterrupt arrives; then trains again.

python interrupted_training.py DIRECTORY
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torl


def descendants() -> list[str]:
    """The command lines of all living processes below this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    family = [os.getpid()]
    for pid in family:  # grows during the loop
        family += children.get(pid, [])
    return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in family[1:]]


def interrupt(directory: Path) -> None:
    """Send SIGINT once the run samples its first step, and again while it closes."""
    while not any(directory.glob("trajectories/*heldout*")):
        time.sleep(0.05)
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)


def train(directory: Path, **run: Any) -> None:
    """Train the demo for one small step."""
    torl.train(
        "demo",
        run={"directory": directory, "steps": 1, **run},
        rollout={"prompts_per_step": 2},
        evaluation={"max_problems": 2, "samples_per_problem": 0},
    )


def main(directory: Path) -> None:
    """Interrupt the first run, and end the second."""
    threading.Thread(target=interrupt, args=(directory,), daemon=True).start()
    try:
        train(directory)
    except KeyboardInterrupt:
        # Python's own helper, which lives as long as this process, owns nothing of the run.
        print("alive:", [line for line in descendants() if "resource_tracker" not in line], flush=True)
    train(directory, resume=True)
    print("trained", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
