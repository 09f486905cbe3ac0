"""Evaluation of models on problem sets, with tables in the layout of the papers."""
