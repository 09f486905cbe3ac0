"""Whole training runs on three nodes of a Ray cluster: as on one machine, and with nodes killed during the run."""

import signal
from pathlib import Path

import pytest

from ray_nodes import RayNodes
from ray_runs import assert_audited, assert_each_episode_once, sampled, steps_trained, train

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(600)
def test_a_run_on_three_nodes_is_the_run_on_one_machine(nodes: RayNodes, tmp_path: Path) -> None:
    """Ranks, seeds and float32 are the same: so is every token, and with it the curve."""
    directory, local = tmp_path / "run", tmp_path / "local"
    with train(directory, nodes, 2) as command:
        assert command.wait() == 0, command.output()
        command.assert_nothing_left()
    nodes.assert_nothing_left()
    assert "of 3 nodes 0-1 have ranks, 1-2 engines" in command.output().replace("\n", " ")
    assert steps_trained(directory) == [0, 1]
    assert_audited(directory)
    logs = {log.name: log.read_text() for log in (directory / "logs").glob("*.log")}  # gathered from the nodes' disks
    assert all("update_policy:" in logs[f"learner_rank_{rank}.log"] for rank in range(2))
    assert all(logs[f"engine_{number}.log"] for number in range(2))
    with train(local, None, 2) as command:
        assert command.wait() == 0, command.output()
    assert sampled(directory, 2) == sampled(local, 2)


@pytest.mark.parametrize(
    ("sent", "status"),
    [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
    ids=["SIGTERM", "SIGKILL"],
)
def test_a_run_that_is_ended_leaves_nothing_on_the_nodes(
    nodes: RayNodes, tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    directory = tmp_path / "run"
    with train(directory, nodes, 100) as command:
        command.wait_for(directory / "metrics.jsonl", '"time/step"')
        command.process.send_signal(sent)
        assert command.wait() == status, command.output()
        command.assert_nothing_left()
    nodes.assert_nothing_left()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("number", "lost"), [(2, "engine"), (0, "learner")])
def test_run_continues_when_a_node_is_lost(nodes: RayNodes, tmp_path: Path, number: int, lost: str) -> None:
    """Node 2 has an engine and a pool, node 0 a learner rank and a pool."""
    directory = tmp_path / "run"
    with train(directory, nodes, 4) as command:
        command.wait_for(directory / "metrics.jsonl", '"time/step"')
        nodes.kill(number)
        nodes.bring_back()
        assert command.wait() == 0, command.output()
        command.assert_nothing_left()
    nodes.assert_nothing_left()
    text = command.output().replace("\n", " ")
    assert ("continues from its last checkpoint" in text) == (lost == "learner")
    assert steps_trained(directory) == [0, 1, 2, 3]
    assert_each_episode_once(directory, 4)
    assert_audited(directory)
