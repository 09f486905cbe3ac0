"""Nodes that die at any time, again and again."""

import math
import random
import time
from pathlib import Path

import pytest
from cli import Command
from ray_nodes import RayNodes
from ray_runs import assert_audited, assert_each_episode_once, steps_trained, train


def wait_for_steps(command: Command, directory: Path, steps: int, seconds: float = math.inf) -> None:
    """Until so many steps have ended, or so much time has passed."""
    enough, deadline = len(steps_trained(directory)) + steps, time.monotonic() + seconds
    while len(steps_trained(directory)) < enough and time.monotonic() < deadline:
        assert command.process.poll() is None, command.output()
        time.sleep(0.05)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_run_survives_the_death_of_any_node_at_any_time(nodes: RayNodes, tmp_path: Path, kills: int) -> None:
    """A node is killed some time after the next step has ended, and before two more have: in whatever is done then."""
    directory, steps, generator = tmp_path / "run", 3 * kills + 2, random.Random(kills)
    often = {"cluster.restarts": str(kills), "engine.restarts": str(kills)}
    with train(directory, nodes, steps, often) as command:
        for _ in range(kills):
            wait_for_steps(command, directory, 1)
            wait_for_steps(command, directory, 2, seconds=generator.uniform(0, 4))
            nodes.replace_any(generator)
        assert command.wait(1200) == 0, command.output()
        command.assert_nothing_left()
    nodes.assert_nothing_left()
    assert steps_trained(directory) == list(range(steps))
    assert_each_episode_once(directory, steps)
    assert_audited(directory)
