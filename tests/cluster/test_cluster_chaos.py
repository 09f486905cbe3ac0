"""Nodes that die again and again: of each kind, and in each part of a step."""

import json
import time
from pathlib import Path

import pytest

from cli import Command
from ray_nodes import RayNodes
from ray_runs import assert_audited, assert_each_episode_once, steps_trained, train

pytestmark = pytest.mark.cluster

NODES = 3
"""Node 0 has a learner rank, node 1 a rank and an engine, node 2 an engine; each has a sandbox and graders."""


def moments(kills: int) -> list[tuple[int, float]]:
    """Nodes to kill, and after which share of a step: for each node from a step's beginning to its end."""
    turns = -(-kills // NODES)
    return [(kill % NODES, (kill // NODES + 0.5) / turns) for kill in range(kills)]


def wait_for_step(command: Command, directory: Path) -> float:
    """Until the next step has ended; returns how long it took."""
    enough = len(steps_trained(directory)) + 1
    while len(steps_trained(directory)) < enough:
        assert command.process.poll() is None, command.output()
        time.sleep(0.05)
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    seconds: float = [row["time/step"] for row in rows if "time/step" in row][-1]
    return seconds


def survive(nodes: RayNodes, directory: Path, deaths: list[tuple[int, float]]) -> None:
    """A run whose nodes die at these moments, each replaced at once, succeeds: every step once, with whole batches."""
    kills = len(deaths)
    steps = 3 * kills + 2
    with train(directory, nodes, steps, {"cluster.max_restarts": str(kills)}) as command:
        for number, share in deaths:
            time.sleep(share * wait_for_step(command, directory))
            nodes.kill(number)
            nodes.bring_back()
        assert command.wait(1200) == 0, command.output()
        command.assert_nothing_left()
    nodes.assert_nothing_left()
    assert steps_trained(directory) == list(range(steps))
    assert_each_episode_once(directory, steps)
    assert_audited(directory)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_run_survives_the_death_of_any_node_at_any_time(nodes: RayNodes, tmp_path: Path, kills: int) -> None:
    survive(nodes, tmp_path / "run", moments(kills))
