"""The model that is trained: its layers, from hidden states to log-probabilities and values."""
