"""How hard problems are for a model: the share of its responses that solve them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torl.config import SampleConfig
from torl.data.writing import encode_problems
from torl.records.files import atomic_write
from torl.report.console import Console
from torl.rollout.sampling import sample_to_file
from torl.types import Problem, ScoredGroup

PASS_RATE = "pass_rate"
"""The field of a problem that holds it."""


async def measure_difficulty(config: SampleConfig, output: Path, console: Console) -> list[Problem]:
    """Sample each problem, and write the problems with their pass rates.

    `config.sample.output` holds the trajectories; a killed command continues with what it holds.

    Raises:
        TorlError: something is not as it should be; what was sampled is kept.
    """
    measured = with_pass_rates(await sample_to_file(config, console))
    with atomic_write(output) as file:
        file.write(encode_problems(measured))
    return measured


def with_pass_rates(groups: Sequence[ScoredGroup]) -> list[Problem]:
    """The problems of these groups; each has among its metadata the pass rate, and of how many samples it is."""
    return [
        replace(
            group.prompt.problem,
            metadata={
                **group.prompt.problem.metadata,
                PASS_RATE: group.accuracy,
                "samples": len(group.members),
            },
        )
        for group in groups
    ]
