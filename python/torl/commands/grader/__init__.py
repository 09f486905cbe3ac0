"""The grader for other programs: `torl grader`."""
