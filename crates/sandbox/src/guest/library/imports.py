"""Modules that are imported when a program asks for them, and need something else here than elsewhere."""

import importlib.machinery
import sys


class Finder:
    """Imports the modules that need something else, and leaves all others to the next."""

    # By name: what is called in place of their execution, with the module and what executes it.
    modules = {}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        execute = cls.modules.get(name)
        if execute is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = Loader(spec.loader, execute)
        return spec


class Loader:
    """Another loader, and what is done around the execution of its module."""

    def __init__(self, loader, execute):
        self._loader, self._execute = loader, execute

    def exec_module(self, module):
        self._execute(module, lambda: self._loader.exec_module(module))

    def __getattr__(self, name):
        return getattr(self._loader, name)


def install():
    sys.meta_path.insert(0, Finder)
