"""A run's own records: what is measured, how it is written down, and how it is read back."""
