"""The routes: each is an operation with a path. `access` has what they take as parameters."""

from __future__ import annotations

from fastapi import APIRouter

from . import (
    bundles,
    events,
    files,
    health,
    notices,
    optuna,
    page,
    plans,
    queue,
    report,
    spaces,
    studies,
    tokens,
    trials,
    winner,
    work,
)

ROUTERS: tuple[APIRouter, ...] = (
    work.router,  # routes are tried in this order, and these are called most
    health.router,
    page.router,
    spaces.router,
    plans.router,
    studies.router,
    queue.router,
    bundles.router,
    tokens.router,
    optuna.router,
    notices.router,
    trials.router,
    files.router,
    winner.router,
    report.router,
    events.router,
)
