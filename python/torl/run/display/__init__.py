"""The display of a run: the console, the outcome and summary at its end, and tables for notebooks."""
