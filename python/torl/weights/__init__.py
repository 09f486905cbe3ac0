"""The way of new weights from the learner to the engine: the leaf that both know, so that neither knows the other."""
