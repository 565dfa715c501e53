"""A child process that makes the vectors of a first hybrid search, while this process makes the words.

A lane is made on little more than one core, and a large base that was just cloned needs both. The child uses
the records that this process has read, and writes the files of the lane.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from duckkb.engine.base import Base
from duckkb.ontology.model import RecordType

MANY = 20_000
"""Number of records from which on a child process saves more than it costs."""


@contextmanager
def vectors_made_beside(base: Base, kinds: Sequence[RecordType]) -> Iterator[None]:
    """Make the missing vector lanes of large types in a child while the block runs, and wait for it at the end.

    What the child cannot make is made when it is next asked for.
    """
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
    """Fork a child that makes the lanes, and return its process ID; 0 where none can be started."""
    try:
        child = os.fork()
    except (AttributeError, OSError):
        return 0
    if child:
        return child
    try:  # never return to the caller, which continues in the parent
        for kind in kinds:
            base.lanes(kind).vectors.list_missing_texts()
    finally:
        os._exit(0)


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
