"""`hpsearch serve`: searches served over HTTP."""

from __future__ import annotations

import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from . import options, printing


def serve(
    port: Annotated[int, typer.Option(help="Port; 0 takes any free one.", min=0, max=65535)] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; another than loopback needs TLS or a proxy.")
    ] = "127.0.0.1",
    uds: Annotated[Path | None, typer.Option(help="Listen on this Unix socket instead of a port.")] = None,
    root: Annotated[
        list[Path] | None,
        typer.Option(help="A folder whose files submitted spaces may name. May be repeated."),
    ] = None,
    lanes: Annotated[
        int | None, typer.Option(help="Studies that share the machine evenly.", min=1, show_default="1")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name it answers to. May be repeated.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A website whose pages may call it. May be repeated.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate file, for https.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Key file of the certificate.")] = None,
    behind_proxy: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of the proxy that ends TLS.")
    ] = None,
    base_path: Annotated[str | None, typer.Option(help="Path under which a proxy has it: /hpsearch.")] = None,
    log: Annotated[
        Path | None, typer.Option(help="Log of requests; - is stderr.", show_default="in HPSEARCH_HOME")
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    storage: options.Storage = None,
    runs: options.Runs = None,
) -> None:
    """Serve searches over HTTP: submit, queue, watch and steer them from anywhere.

    Who is notified, what an hour costs and other settings are in ~/.local/state/hpsearch/serve.yaml, or in
    $HPSEARCH_HOME/serve.yaml; options go before it.

    Example: hpsearch serve --lanes 2
    """
    with options.needs_extra():
        from ..service.home import Home
        from ..service.server import Address
        from ..service.server import serve as run

    home = Home.at()
    settings = home.settings()
    given = options.given(lanes=lanes, behind_proxy=behind_proxy, base_path=base_path)
    for name, values in (("allow_hosts", allow_host), ("allow_origins", allow_origin)):
        given |= {name: (*getattr(settings, name), *values)} if values else {}
    if root:
        given["roots"] = (*settings.roots, *(folder.resolve() for folder in root))
    settings = replace(settings, **given)
    if missing := [str(folder) for folder in settings.roots if not folder.is_dir()]:
        raise UsageError(f"there is no folder {', '.join(missing)} to be a root")
    run(
        options.workspace(storage, runs),
        home=home,
        settings=settings,
        address=Address(host, port, uds, tls_cert, tls_key),
        log=log,
        announce=printing.tell,
        opened=webbrowser.open if browser else None,
    )
