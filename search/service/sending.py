"""Files as answers: the whole or a range of an opened file, always to be saved, never to be shown."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from typing import BinaryIO
from urllib.parse import quote

from fastapi import Request, Response
from starlette.responses import StreamingResponse

from .problems import Problem

PIECE = 1 << 18  # bytes


def send_file(
    request: Request, descriptor: int, name: str, media_type: str = "application/octet-stream", **headers: str
) -> Response:
    """An opened file as an attachment, which is closed in the end; the part that the header Range asks for.

    The end of the file is where it is now, though it may grow.
    """
    size = os.fstat(descriptor).st_size
    try:
        part = _range(request, size)
    except Problem:
        os.close(descriptor)
        raise
    begin, end = part or (0, size)
    about = {
        "Accept-Ranges": "bytes",
        "Content-Length": str(end - begin),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        **({} if part is None else {"Content-Range": f"bytes {begin}-{end - 1}/{size}"}),
        **headers,
    }
    if request.method == "HEAD":
        os.close(descriptor)
        return Response(None, 200, about, media_type)
    pieces = _pieces(os.fdopen(descriptor, "rb"), begin, end)
    return StreamingResponse(pieces, 200 if part is None else 206, about, media_type)


async def _pieces(file: BinaryIO, begin: int, end: int) -> AsyncIterator[bytes]:
    with file:  # closed with the last reference to it, where nobody takes a piece
        while begin < end:
            piece = await asyncio.to_thread(os.pread, file.fileno(), min(PIECE, end - begin), begin)
            if not piece:  # it was cut: the connection is closed, as too little was sent
                return
            begin += len(piece)
            yield piece


def _range(request: Request, size: int) -> tuple[int, int] | None:
    """The range that is asked for; None for all. Raises `Problem` where there is no such range.

    Of an empty file that is all of it, which is no mistake of who asks for its end.
    """
    asked = request.headers.get("range")
    if asked is None or "if-range" in request.headers or not size:
        return None
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", asked.strip())
    if match is None or match[0].endswith("=-"):
        return None  # several ranges, or another unit: RFC 9110 lets a server give it all
    first, last = match[1], match[2]
    if not first:
        begin, end = max(0, size - int(last)), size
    else:
        begin, end = int(first), size if not last else min(size, int(last) + 1)
    if begin >= end:
        told = f"it has {size} bytes"
        raise Problem(416, "range", None, told, headers={"Content-Range": f"bytes */{size}"})
    return begin, end
