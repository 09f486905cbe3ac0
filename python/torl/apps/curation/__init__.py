"""Curation of training problems: the steps of `python -m torl.data`."""
