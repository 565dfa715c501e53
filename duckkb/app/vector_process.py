"""What the process does that `beside` starts."""

import os
from pathlib import Path

from duckkb.app.wiring import Choice, wire
from duckkb.engine import boot as booting


def main(root: str, type_name: str) -> None:
    """Open a base and have the vectors of a type on disk."""
    _, wiring = wire(Path(root), Choice())
    base = booting.boot(wiring)
    kind = base.ontology.find(type_name)
    if kind is not None:
        base.ensure(kind)
        base.backend.dimension(kind)
    os._exit(0)
