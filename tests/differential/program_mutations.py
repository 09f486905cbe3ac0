"""Programs with one mistake: an operator, a constant, a comparison, an argument or a statement is another."""

import ast
from collections.abc import Iterator
from random import Random

OPERATORS: dict[type[ast.AST], ast.AST] = {
    ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Add(), ast.Div: ast.FloorDiv(), ast.FloorDiv: ast.Div(),
    ast.Mod: ast.FloorDiv(), ast.Pow: ast.Mult(), ast.BitAnd: ast.BitOr(), ast.BitOr: ast.BitAnd(),
    ast.BitXor: ast.BitOr(), ast.LShift: ast.RShift(), ast.RShift: ast.LShift(),
    ast.Lt: ast.LtE(), ast.LtE: ast.Lt(), ast.Gt: ast.GtE(), ast.GtE: ast.Gt(), ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(), ast.In: ast.NotIn(), ast.NotIn: ast.In(), ast.Is: ast.IsNot(), ast.IsNot: ast.Is(),
    ast.And: ast.Or(), ast.Or: ast.And(), ast.UAdd: ast.USub(), ast.USub: ast.UAdd(),
}  # fmt: skip


def mutants(program: str, count: int, random: Random) -> list[str]:
    """Return up to `count` different programs that each differ from `program` in one place."""
    places = [(number, way) for number, node in enumerate(ast.walk(ast.parse(program))) for way in _ways(node)]
    random.shuffle(places)
    found = {ast.unparse(ast.parse(program)): None}
    for number, way in places:
        tree = ast.parse(program)
        _change(list(ast.walk(tree))[number], way)
        found[ast.unparse(ast.fix_missing_locations(tree))] = None
        if len(found) > count:
            break
    return list(found)[1:]


def _ways(node: ast.AST) -> Iterator[str]:
    """Yield the names of the mistakes that a node can have."""
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.AugAssign) and type(node.op) in OPERATORS:
        yield "operator"
    if isinstance(node, ast.Compare):
        yield "comparison"
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield from ("one more", "one less")
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 20:
        yield "text"
    if isinstance(node, ast.Call) and len(node.args) > 1:
        yield "arguments"
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "condition"
    if isinstance(node, ast.Return) and node.value is not None:
        yield "result"
    if isinstance(node, ast.FunctionDef | ast.For | ast.While | ast.If):
        yield from (f"statement {index}" for index in range(len(node.body)))


def _change(node: ast.AST, way: str) -> None:
    if way == "operator":
        node.op = OPERATORS[type(node.op)]  # type: ignore[attr-defined]
    elif way == "comparison":
        node.ops[0] = OPERATORS[type(node.ops[0])]  # type: ignore[attr-defined]
    elif way in ("one more", "one less"):
        value = node.value  # type: ignore[attr-defined]
        shifted = value + (1 if way == "one more" else -1)
        node.value = not value if isinstance(value, bool) else shifted  # type: ignore[attr-defined]
    elif way == "text":
        node.value = node.value[1:] + "x"  # type: ignore[attr-defined]
    elif way == "arguments":
        node.args[:2] = reversed(node.args[:2])  # type: ignore[attr-defined]
    elif way == "condition":
        node.test = ast.UnaryOp(ast.Not(), node.test)  # type: ignore[attr-defined]
    elif way == "result":
        node.value = ast.Constant(None)  # type: ignore[attr-defined]
    else:
        node.body[int(way.split()[1])] = ast.Pass()  # type: ignore[attr-defined]
