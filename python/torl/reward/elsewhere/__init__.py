"""torl's grader in the hands of other trainers and programs."""
