"""Tests of what the learner does on CUDA, without a GPU."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "integration"))  # tiny models, samples and forked ranks
