"""The pages of runs as HTML: one run, or several on one page."""
