"""The vectors of a first hybrid search made by a child of this process, while this one makes its words.

A lane is made on little more than one core, and whoever has just cloned a large base waits for both. A child has what this
process has read without reading it again; what it leaves are the lane's files.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from duckkb.engine.base import Base
from duckkb.ontology.model import RecordType

MANY = 20_000
"""Records from which on a child costs less than it saves."""


@contextmanager
def vectors_made_beside(base: Base, kinds: Sequence[RecordType]) -> Iterator[None]:
    """Have the lanes by vector of large types made while the block runs, where none lie on disk, and wait for that. What the
    child could not make is made by whoever asks it next."""
    target_kinds = (
        [kind for kind in kinds if _has_no_lane(base, kind)] if base.wiring.command and _count_cores() > 1 else []
    )
    child = _fork_child(base, target_kinds) if target_kinds else 0
    try:
        yield
    except BaseException:
        if child:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        raise
    finally:
        if child:
            with suppress(ChildProcessError):
                os.waitpid(child, 0)


def _has_no_lane(base: Base, kind: RecordType) -> bool:
    if not kind.vectors or base.tree.count(kind) < MANY or base.rows(kind).state.folder is None:
        return False
    return base.lanes(kind).vectors.account() is None


def _fork_child(base: Base, kinds: Sequence[RecordType]) -> int:
    """The number of the child; 0 where there can be none."""
    try:
        child = os.fork()
    except (AttributeError, OSError):
        return 0
    if child:
        return child
    try:  # nothing of this may come back to what called: that goes on in the parent
        for kind in kinds:
            base.lanes(kind).vectors.lacking()
    finally:
        os._exit(0)


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
