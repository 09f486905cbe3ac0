"""The two ways a run gets fresh state, for fixtures: whatever holds must hold for both."""

import pytest

# The whole memory is compared after every run, and no run is answered with another's outcome.
KEPT = {"reuse_guest": True, "verify_every": 1, "shared_bytes": 0}
FRESH = {"reuse_guest": False, "shared_bytes": 0}
GUESTS = [pytest.param(KEPT, id="kept"), pytest.param(FRESH, id="fresh")]
