"""The demo: procedural problems, and a tiny base model with habits that reinforcement learning can select among."""
