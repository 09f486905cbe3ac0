"""A controller as a separate program: `python learner_controller.py MODEL LOGS`.

It trains one step, prints a line of JSON with the metrics and the ranks' processes, and waits for its standard input to
end; then it closes the learner and exits.
"""

import asyncio
import json
import sys
from pathlib import Path

from learner_fixtures import random_samples, start_learner


async def control(model_directory: Path, logs: Path) -> None:
    """One step on a fixed batch."""
    async with await start_learner(model_directory, logs, ranks=2, zero_stage=2) as learner:
        metrics = await learner.update(random_samples(5, seed=4), step=0)
        ranks = [rank.process.pid for rank in learner._group.ranks if rank.process is not None]
        print(json.dumps({"metrics": metrics, "processes": ranks}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(control(Path(sys.argv[1]), Path(sys.argv[2])))
