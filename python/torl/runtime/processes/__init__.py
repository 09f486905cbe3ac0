"""Processes: how a program ends, how its children end with it, and what they last said."""
