"""Episodes that agent programs play: an OpenAI-compatible address for each, whose requests become trajectories."""
