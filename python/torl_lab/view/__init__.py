"""The viewer of runs, `torl view`: an index of their trajectories, an HTTP server, and its page."""
