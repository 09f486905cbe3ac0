"""Obstacles in the code of a test: actions that reach the program only in the same process."""

import ast
from collections.abc import Iterator, Sequence

_SHARED = {"open", "NamedTemporaryFile", "TemporaryDirectory", "mkstemp", "mkdtemp", "chdir", "setenv"}
_WATCHING = {"assertLogs", "assertNoLogs", "assertWarns", "assertWarnsRegex", "catch_warnings"}
_REPLACED = {"stdin", "argv", "environ"}


def obstacles(tree: ast.Module, modules: Sequence[str]) -> Iterator[str]:
    """Yield why a test cannot be judged. It imports the program by the names of modules."""
    theirs = {*modules}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            theirs |= {alias.asname for alias in node.names if alias.name in modules and alias.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _last_name(node.func)
            if name in _SHARED:
                yield f"the test calls {name}: it shares no files and no environment with the program"
            if name in _WATCHING:
                yield f"the test calls {name}: it sees no warnings and no logs of the program"
            if name == "dict" and _last_name(getattr(node.func, "value", node)) == "patch":
                yield "the test patches a dictionary"
            if name == "patch" or (name == "object" and _last_name(getattr(node.func, "value", node)) == "patch"):
                target = _target(node)
                if target.partition(".")[0] not in theirs and target not in ("sys.stdout", "sys", "stdout"):
                    yield f"the test patches {target or 'an object'}, which the program does not see"
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            place = node if isinstance(node, ast.Attribute) else node.value
            if _last_name(place) in _REPLACED and ast.unparse(place).partition(".")[0] in ("sys", "os"):
                yield f"the test sets {ast.unparse(node)}, which the program does not see"


def _target(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    if isinstance(first, ast.Constant):
        return str(first.value)
    return "" if first is None else ast.unparse(first)


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
