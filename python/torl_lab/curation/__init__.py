"""Curation of training problems: the steps of `torl data`."""
