"""When trials are compared, and which of them continue."""
