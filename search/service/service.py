"""The service: what its routes work with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import quote

from ...storage.database import open_storage
from ...storage.workspace import Workspace
from ..errors import UsageError
from ..exchange.notices.base import Target
from ..exchange.notices.notifier import Notifier
from ..exchange.notices.targets import targets_of
from ..queue.slots import Machine
from .bundles.store import Bundles
from .home import Home, Settings
from .planning import Plan, Plans
from .queue.moves import Moves
from .queue.reconciler import Reconciler
from .relay import Relay
from .tickets import Tickets
from .tokens import Tokens
from .visits import Visits
from .watching import Watch


class Part(Protocol):
    """A part that works beside the routes, from the start of the server to its end."""

    def start(self) -> None:
        """Begin. Called once the server listens, on its loop."""

    def ready(self) -> bool:
        """Whether it can do its work now."""

    def leave(self) -> None:
        """End what would else hold up the end of the server: streams, and calls that wait."""

    def stop(self) -> None:
        """End, soon."""


@dataclass
class Service:
    """A workspace that is served. Nothing that matters is in memory alone."""

    workspace: Workspace
    home: Home
    settings: Settings
    tokens: Tokens
    visits: Visits  # of browsers to optuna-dashboard
    watch: Watch  # what changes in studies
    queue: Reconciler  # what is wanted of studies, and what is done for it
    relay: Relay  # the way from remote workers to drivers
    bundles: Bundles  # submitted code
    plans: Plans  # searches that are foreseen
    targets: list[Target]  # who is notified
    notifier: Notifier  # who tells them
    url: str | None = None  # of its page, once it listens
    tickets: Tickets = field(default_factory=Tickets)
    is_leaving: bool = False  # whether the server ends

    @classmethod
    def at(cls, workspace: Workspace, home: Home, settings: Settings | None = None) -> Service:
        """The service of a workspace, whose database is made where it is missing."""
        open_storage(workspace.url, create=True)
        settings = home.settings() if settings is None else settings
        watch = Watch(workspace)
        here = Machine.here(settings.lanes, settings.settle, settings.ray_studies)
        machine = replace(here, price_per_hour=settings.price_per_hour)
        queue = Reconciler(workspace, home.folder, machine, bundles=home.bundles)

        queue.moved = Moves(watch.publish).look

        def tell(plan: Plan) -> None:
            watch.publish("plan.done", plan, plan.study)

        try:
            targets = targets_of(settings.notify)
        except UsageError as error:
            raise UsageError(f"notify in serve.yaml: {error}", code=error.code) from error
        tokens = Tokens(home)
        service = cls(
            workspace,
            home,
            settings,
            tokens,
            Visits(tokens),
            watch,
            queue=queue,
            relay=Relay(workspace, home),
            bundles=Bundles(home.bundles),
            plans=Plans(queue, workspace.runs.parent, tell),
            targets=targets,
            notifier=Notifier(
                workspace, targets, is_mine=queue.is_mine, link=lambda study: service.page_of(study)
            ),
        )
        return service

    def page_of(self, study: str | None = None) -> str | None:
        """The address of the page about a study, or of all; None where it is known to nobody."""
        if self.url is None:
            return None
        page = f"{self.url}{self.settings.base_path}/"
        return page if study is None else f"{page}#/studies/{quote(study, safe='')}"

    @property
    def parts(self) -> tuple[Part, ...]:
        """Those that start and stop with the server, in the order of their start."""
        return self.watch, self.relay, self.queue, self.plans, self.notifier

    def drain(self, on: bool) -> None:
        """Put back what runs, end what is measured, and start nothing; or go on."""
        self.queue.drain(on)
        if on:
            self.plans.end("the server is drained")

    def leave(self) -> None:
        """End what would else hold up the end of the server."""
        self.is_leaving = True
        for part in self.parts:
            part.leave()
