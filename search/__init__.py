"""The search: driver, backends, algorithms and the command line."""
