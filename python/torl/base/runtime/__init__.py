"""Processes on this machine and on the nodes of a cluster."""
