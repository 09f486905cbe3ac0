"""Processes, threads and signals: start, watch, and inspect them."""
