"""Playing problems: the episode loop, many episodes at once, and what is done with them when nothing is learned."""
