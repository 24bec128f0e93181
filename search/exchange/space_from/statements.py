"""What statements of a script do: whether they ask a trial, whether they leave, what a pattern tests."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence


def asks(nodes: Sequence[ast.AST], trials: Collection[str]) -> bool:
    """Whether these nodes ask the trial, which has these names, for suggestions, or pass it on."""
    inside = [node for each in nodes for node in ast.walk(each)]
    other_uses = {
        id(node.value)
        for node in inside
        if isinstance(node, ast.Attribute) and not node.attr.startswith("suggest_")
    }
    return any(
        isinstance(node, ast.Name) and node.id in trials and id(node) not in other_uses for node in inside
    )


def leaves(statements: Sequence[ast.stmt]) -> bool:
    """Whether these statements end the function or the turn of a loop."""
    return bool(statements) and isinstance(statements[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def pattern_test(subject: ast.expr, pattern: ast.pattern) -> ast.expr | bool | None:
    """The test that a pattern of a `match` stands for; True for any subject, None where it is unknown."""
    match pattern:
        case ast.MatchValue(value=value):
            return ast.Compare(subject, [ast.Eq()], [value])
        case ast.MatchSingleton(value=single):
            return ast.Compare(subject, [ast.Eq()], [ast.Constant(single)])
        case ast.MatchOr(patterns=patterns):
            tests = [pattern_test(subject, each) for each in patterns]
            values = [test.comparators[0] for test in tests if isinstance(test, ast.Compare)]
            whole = len(values) == len(tests)
            return ast.Compare(subject, [ast.In()], [ast.List(values, ast.Load())]) if whole else None
        case ast.MatchAs(pattern=None):
            return True
    return None
