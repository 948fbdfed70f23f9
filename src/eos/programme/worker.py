"""Worker: a process that makes pieces, one at a time, as another process names them.

Both write JSON lines. The first line in says what to work on; the first line out describes the
model. Then each line in is the name of a piece, and lines out say how far it is, that it is done,
or what went wrong. When its input ends the worker does too, at once: nothing is written to a folder
that another programme may have taken over.
"""

import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any, TextIO

from eos.errors import EosError
from eos.programme.context import Context
from eos.programme.running import make_piece, start_progress
from eos.programme.scope import Scope


def main(requests: TextIO, replies: TextIO) -> None:
    """Make the pieces that ``requests`` name until it ends."""
    import torch

    def send(**message: Any) -> None:
        print(json.dumps(message), file=replies, flush=True)

    setup = json.loads(requests.readline())
    torch.set_num_threads(setup["threads"])
    context = Context(Path(setup["folder"]), Scope(**setup["scope"]))
    try:
        progress = start_progress(context, studies=setup["studies"])
        send(model=context.info.model_dump(mode="json"))
        pieces = {piece.name: piece for piece in progress.pieces}
        for name in _piece_names(requests):
            make_piece(context, pieces[name], lambda done, total: send(progress=[done, total]))
            send(made=name)
    except EosError as failure:
        send(error=str(failure))
    except Exception:  # whatever it is, the process that waits has to know
        send(error=traceback.format_exc())


def _piece_names(requests: TextIO) -> Iterator[str]:
    """Yield the names of pieces read from standard input; end the process when it closes."""
    names: Queue[str] = Queue()

    def read() -> None:
        for line in requests:
            names.put(line.strip())
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield names.get()


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not get between the lines
    main(sys.stdin, own)
