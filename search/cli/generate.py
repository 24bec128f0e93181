"""`hpsearch generate`: let a trained model write, to look at it."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable
from typing import Annotated, Literal

import typer

from ..errors import UsageError
from ..streams import harmless
from . import common

Device = Literal["auto", "cpu", "cuda", "mps"]


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command()(generate)


def generate(
    run: Annotated[
        str, typer.Argument(help="A folder of hpsearch train, a study (its best trial), or a model's file.")
    ],
    prompt: Annotated[str, typer.Option(help="The text to go on from; - reads it from standard input.")],
    trial: Annotated[int | None, typer.Option(min=0, help="Of a study: the trial of this number.")] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="The model as it was at a checkpoint that is kept (save_total_limit): its samples, steps or "
            "epochs; or best.",
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Write so many bytes: a token is a byte.")] = 200,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Less than 1 sharpens what is likely; 0 takes the likeliest.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from the so many likeliest.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Draw from the fewest that have this share together."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed writes the same text.")] = 0,
    device: Annotated[Device, typer.Option(help="Where to compute.")] = "auto",
    storage: common.Storage = None,
    runs: common.Runs = None,
) -> None:
    """Let a model of a built-in objective go on from a prompt. Prints the prompt and what follows.

    Example: hpsearch generate trained/lora-12 --prompt "The with statement" --temperature 0.7
    """
    begin = _bytes(prompt)
    if top_p == 0:
        raise UsageError("--top-p 0 leaves nothing to draw from; --temperature 0 takes the likeliest")
    from ..training.models import find_model

    kept = checkpoint is not None
    model = find_model(run, trial=trial, checkpoints=kept, storage=storage, runs=runs)
    from ...objectives.generate import text_from

    follows = text_from(
        model,
        begin,
        count=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        device=device,
        checkpoint=checkpoint,
    )
    _print(begin, follows)


def _bytes(prompt: str) -> bytes:
    found = sys.stdin.buffer.read() if prompt == "-" else prompt.encode(errors="surrogateescape")
    if not found:
        raise UsageError("the prompt is empty; a model goes on from one character at least")
    return found


def _print(prompt: bytes, follows: Iterable[int]) -> None:
    """Print text as it comes. Bytes that are no UTF-8 become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    terminal = sys.stdout.isatty()
    ended = ""

    def write(text: str) -> None:
        nonlocal ended
        ended = text[-1:] or ended
        sys.stdout.write(harmless(text) if terminal else text)
        sys.stdout.flush()

    coming = iter(follows)
    first = next(coming)  # what is wrong with the model shows before anything is printed
    write(decoder.decode(prompt))
    write(decoder.decode(bytes([first])))
    for byte in coming:
        write(decoder.decode(bytes([byte])))
    write(decoder.decode(b"", final=True))
    if ended != "\n":
        write("\n")
