"""Modules that are imported on demand and need changes in this environment."""

import importlib.machinery
import sys


class Finder:
    """An importer of the modules that need changes; leaves all others to the next importer."""

    # By name: the function called instead of their execution, with the module and the original function.
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
    """A loader that wraps the execution of its module."""

    def __init__(self, loader, execute):
        self._loader, self._execute = loader, execute

    def exec_module(self, module):
        self._execute(module, lambda: self._loader.exec_module(module))

    def __getattr__(self, name):
        return getattr(self._loader, name)


def install():
    sys.meta_path.insert(0, Finder)
