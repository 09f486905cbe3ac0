"""Weight transfer from the learner to the engine. Both sides import this package, and neither imports the other."""
