"""Search spaces: the YAML language, its loader, and the spaces that ship."""

from .checks import warnings
from .edit import log_range, with_log_range
from .errors import Issue, SpaceError
from .expressions import Expression, ExpressionError
from .json_schema import json_schema
from .loader import load, loads, shipped
from .parameters import Choice, Constant, Derived, Parameter, describe
from .ranges import Range
from .settings import Command
from .space import Space, nested
from .spec import Spec, differences

__all__ = [
    "Choice",
    "Command",
    "Constant",
    "Derived",
    "Expression",
    "ExpressionError",
    "Issue",
    "Parameter",
    "Range",
    "Space",
    "SpaceError",
    "Spec",
    "describe",
    "differences",
    "json_schema",
    "load",
    "loads",
    "log_range",
    "nested",
    "shipped",
    "warnings",
    "with_log_range",
]
