"""Activates the additions to the library, after all modules with their own locks have been imported."""

import _torl_alarms
import _torl_digests
import _torl_display
import _torl_driver
import _torl_event_loop
import _torl_executors
import _torl_imports
import _torl_indices
import _torl_locks
import _torl_numbers
import _torl_orders
import _torl_plots
import _torl_processes
import _torl_ranges
import _torl_scikit_learn
import _torl_system
import _torl_threads
import _torl_tracebacks
import _torl_waiting
import _torl_widths


def install():
    _torl_locks.install()
    _torl_threads.install()
    _torl_executors.install()
    _torl_processes.install()
    _torl_event_loop.install()
    _torl_imports.install()
    _torl_plots.install()
    _torl_indices.install()
    _torl_orders.install()
    _torl_widths.install()
    _torl_scikit_learn.install()
    _torl_ranges.install()
    _torl_numbers.install()
    _torl_digests.install()
    _torl_system.install()
    _torl_alarms.install()
    _torl_display.install()
    _torl_tracebacks.install()
    _torl_driver.at_end.append(_torl_waiting.finish)
