"""The grader for other programs: `python -m torl.rewards`."""
