"""The model that learns: its layers as torl runs them, from hidden states to log-probabilities and values."""
