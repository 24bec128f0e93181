"""The errors of the search that a user is shown without a traceback."""


class SearchError(Exception):
    """The search cannot go on or begin; the message says what was found and what to do about it."""


class UsageError(SearchError):
    """Something was asked for that there is not, or in a way that cannot be."""
