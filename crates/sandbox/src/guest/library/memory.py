"""The private memory of a forked process, in an interpreter that cannot fork: the variables of the program."""

import multiprocessing.process
import sys
from multiprocessing.reduction import ForkingPickler

import numpy

CONTAINERS = {list: list, dict: dict, set: set, bytearray: bytearray, numpy.ndarray: numpy.copy}


def apart(value):
    """Return a shallow copy of a container whose changes others would not see; anything else unchanged."""
    copy = CONTAINERS.get(type(value))
    return value if copy is None else copy(value)


class Child:
    """A process: names that its code binds, and additions to a container in a variable, stay private."""

    def __init__(self, process):
        self.process = process
        self._variables = None

    def call(self, function):
        """Run `function` as the process."""
        main = vars(sys.modules["__main__"])
        parent, processes = dict(main), multiprocessing.process
        parents = processes._current_process, processes._parent_process
        if self._variables is None:
            copies = {id(value): apart(value) for value in parent.values()}
            self._variables = {name: copies[id(value)] for name, value in parent.items()}
        main.update(self._variables)
        processes._current_process, processes._parent_process = self.process, parents[0]
        try:
            return function()
        finally:
            processes._current_process, processes._parent_process = parents
            self._variables = dict(main)
            main.clear()
            main.update(parent)

    def call_elsewhere(self, function, args, kwargs):
        """Run a function that is sent to the process, with its arguments, and whose result is sent back."""
        message = ForkingPickler.dumps((function, args, kwargs))

        def work():
            called, positional, named = ForkingPickler.loads(message)
            return ForkingPickler.dumps(called(*positional, **named))

        return ForkingPickler.loads(self.call(work))
