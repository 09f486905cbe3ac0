"""Adapters for other libraries: their environments in torl, and torl's sandbox and grader in their trainers.

Each module is named after its library. Only `openenv` and `verifiers` need that library installed.
"""
