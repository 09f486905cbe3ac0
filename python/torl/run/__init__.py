"""A run as data: its configuration, its placement on devices, its records, and their display."""
