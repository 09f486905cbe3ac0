"""The exhibits of the bug museum: bugs of public trainers as patches of torl in the processes of a run."""
