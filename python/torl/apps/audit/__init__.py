"""Auditing a run from its own files: what the records say is worked out again another way, and compared."""
