"""Sample trajectories and learn nothing.

    python -m torl.rollout CONFIG --sample.problems FILE --sample.output FILE [--section.field value ...]

CONFIG may be that of a training run. A killed command goes on where it was; the last line it prints is JSON.
"""

import sys
from collections.abc import Sequence

from torl.config import RolloutCommandConfig
from torl.errors import ConfigError
from torl.settings import parse_command_line
from torl.supervision import run_until_done


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (see `torl.supervision.run_until_done`; 2: wrong configuration)."""
    try:
        config = parse_command_line(
            RolloutCommandConfig,
            "python -m torl.rollout",
            "Sample trajectories and learn nothing.",
            sys.argv[1:] if arguments is None else arguments,
        )
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    from torl.rollout.sampling import sample_to_file

    return run_until_done(sample_to_file(config))


if __name__ == "__main__":
    sys.exit(main())
