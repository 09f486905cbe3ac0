"""Which policies sampled a step's tokens."""

from torl.records.rows import TrajectoryRecord


def version_mismatch(record: TrajectoryRecord, max_staleness: int) -> str | None:
    """Which policy versions sampled a trajectory's tokens though its step does not allow them; None if none did.

    The learner's policy has version `step` when it learns from that step, and nothing older than
    `step - max_staleness` may have been sampled for it.
    """
    trajectory, oldest = record.trajectory, max(0, record.step - max_staleness)
    versions = {int(version) for version in trajectory.policy_versions_T[trajectory.loss_mask_T]}
    wrong = sorted(version for version in versions if not oldest <= version <= record.step)
    return f"sampled by policy versions {wrong}, outside {oldest} to {record.step}" if wrong else None
