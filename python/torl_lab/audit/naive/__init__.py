"""The audit's own formulas: a second implementation of what a run computes, in plain Python, one number at a time.

They follow `docs/algorithms.md` and the definitions of `torl.run.records.metric_names`, read the fields of the records,
and call none of the functions that they check. They share with a run only what is a definition, not a formula: the
types of a record, the names of metrics, settings, `derive_seed` with the generators of Python and NumPy, and the
parsers of boxed answers and of a format's result tags. `tests/project/test_layout.py` has the list.

A component is found by the place of its function (`location_of`). One that has no formula here, such as a user's, is
called a second time, and a note of the audit names it.
"""
