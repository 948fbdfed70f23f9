"""Worker: a process that makes pieces, one at a time, as another process names them.

Both speak JSON lines. The first line in says what to work on; the first line out has the facts of
the model. Then each line in is the name of a piece, and lines out say how far it is, that it is
done, or what went wrong. When its input ends the worker does too, at once: nothing is written to a
folder that another programme may have taken over.
"""

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from queue import Queue
from typing import Any, TextIO

from eos.errors import EosError
from eos.programme.assembly import assemble
from eos.programme.pieces import digests
from eos.programme.running import make_piece
from eos.programme.scope import Scope
from eos.programme.workshop import Workshop


def main(given: TextIO, out: TextIO) -> None:
    """Make the pieces that ``given`` names until it ends."""
    import torch

    tell = _speaker(out)
    first = json.loads(given.readline())
    torch.set_num_threads(first["threads"])
    workshop = Workshop(Path(first["folder"]), Scope(**first["scope"]))
    try:
        facts = workshop.facts
        pieces = assemble(workshop.scope, facts, studies=first["studies"])
        workshop.digests = digests(pieces, model=facts.fingerprint)
        tell({"facts": facts.model_dump(mode="json")})
        named = {piece.name: piece for piece in pieces}
        for name in _names(given):

            def progress(done: float, total: float, what: str) -> None:
                tell({"progress": [done, total, what]})

            make_piece(workshop, named[name], progress=progress)
            tell({"made": name})
    except EosError as failure:
        tell({"error": str(failure), "kind": type(failure).__name__})
    except Exception:  # whatever it is, the process that waits has to know
        tell({"error": traceback.format_exc(), "kind": "failure"})


def _speaker(out: TextIO) -> Any:
    def tell(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    return tell


def _names(given: TextIO) -> Any:
    """Yield the names of pieces read from standard input; end the process when it closes."""
    asked: Queue[str] = Queue()

    def listen() -> None:
        for line in given:
            asked.put(line.strip())
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield asked.get()


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not get between the lines
    main(sys.stdin, own)
