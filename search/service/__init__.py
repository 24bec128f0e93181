"""The service: searches submitted, watched and steered over HTTP, and optuna-dashboard.

Needs the extra `serve`, all but `dashboard`.
"""
