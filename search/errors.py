"""The one error of the search that a user is shown without a traceback."""


class SearchError(Exception):
    """The search cannot go on or begin; the message says what was found and what to do about it."""
