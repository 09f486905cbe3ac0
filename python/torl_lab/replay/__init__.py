"""Make a step of a run again, and find the first difference of two runs."""
