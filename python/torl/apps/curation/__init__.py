"""From raw problems to what a run trains on: the steps of `python -m torl.data`."""
