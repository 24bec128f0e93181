"""`hpsearch generate`: see what a trained model writes."""

from __future__ import annotations

import codecs
import itertools
import sys
from collections.abc import Iterator
from typing import Annotated, Literal

import typer

from ..streams import harmless
from . import commands, options, printing

Device = Literal["auto", "cpu", "cuda", "mps"]


def generate(
    run: Annotated[
        str, typer.Argument(help="Folder of hpsearch train, study (its best trial), or model file.")
    ],
    prompt: Annotated[str, typer.Option(help="Text to continue; - reads it from standard input.")],
    trial: Annotated[int | None, typer.Option(min=0, help="Use this trial of the study.")] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Use an older checkpoint that save_total_limit kept, named by its samples, steps or epochs; "
            "or best.",
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Write this many tokens. A token is a byte.")] = 200,
    temperature: Annotated[
        float,
        typer.Option(min=0.0, help="Below 1, likely tokens become likelier; 0 always takes the likeliest."),
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from this many likeliest tokens.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Sample from the fewest tokens that have this probability together."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed writes the same text.")] = 0,
    device: Annotated[Device, typer.Option(help="Device to compute on.")] = "auto",
    storage: options.Storage = None,
    runs: options.Runs = None,
) -> None:
    """Continue a prompt with a model of `lora` or `pretrain`. Prints the prompt and the continuation.

    Example: hpsearch generate trained/lora-12 --prompt "The with statement" --temperature 0.7
    """
    from ..operations import train

    with commands.steps_as_commands(commands.finding(storage, runs)):
        written = train.generate(
            workspace=options.workspace(storage, runs),
            run=run,
            prompt=sys.stdin.buffer.read() if prompt == "-" else prompt.encode(errors="surrogateescape"),
            trial=trial,
            checkpoint=checkpoint,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            device=device,
        )
    _print(written.prompt, written.added)


def _print(prompt: bytes, added: Iterator[int]) -> None:
    """Print text as it comes. Bytes that are no UTF-8 become U+FFFD."""
    terminal, text = sys.stdout.isatty(), ""
    first = next(added)  # what is wrong with the model shows before anything is printed
    parts = itertools.chain([prompt], (bytes([byte]) for byte in itertools.chain([first], added)))
    for text in codecs.iterdecode(parts, "utf-8", errors="replace"):
        sys.stdout.write(harmless(text) if terminal else text)
        sys.stdout.flush()
    if not text.endswith("\n"):
        printing.tell("")
