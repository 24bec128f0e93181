"""Search spaces: the YAML language, its loader, and the spaces that ship."""

from .checks import warnings
from .edit import log_range, with_log_range
from .errors import Issue, SpaceError
from .json_schema import json_schema
from .loader import load, loads, shipped, shipped_text
from .parameters import Choice, Constant, Derived, Parameter, describe
from .ranges import Range
from .space import Space, nested
from .spec import Spec, differences
from .widening import End, Interval, is_ordered, line, widened

__all__ = [
    "Choice",
    "Constant",
    "Derived",
    "End",
    "Interval",
    "Issue",
    "Parameter",
    "Range",
    "Space",
    "SpaceError",
    "Spec",
    "describe",
    "differences",
    "is_ordered",
    "json_schema",
    "line",
    "load",
    "loads",
    "log_range",
    "nested",
    "shipped",
    "shipped_text",
    "warnings",
    "widened",
    "with_log_range",
]
