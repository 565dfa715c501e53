"""A lane is state that is made by taking all rows of a type: for itself, or with other lanes in one pass over the rows."""

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from duckkb.lanes.component import State
from duckkb.lanes.derived import Derived
from duckkb.ports import Row, Version


class Lane(Derived):
    """`Derived` that is built out of the rows' entries."""

    @abstractmethod
    def begin(self, folder: Path | None) -> None:
        """Begin anew, in an empty folder where one is given."""

    @abstractmethod
    def take(self, rows: Sequence[Row]) -> None:
        """Take some rows, which have at least the entries of this lane."""

    @abstractmethod
    def conclude(self) -> None:
        """Do what is left when all rows were taken; another thread may do it."""

    @abstractmethod
    def state(self) -> State:
        """What came of it."""

    def _build(self, folder: Path | None) -> State:
        self.begin(folder)
        for rows in self._rows.batches(self.lane):
            self.take(rows)
        self.conclude()
        return self.state()


def build_together(lanes: Sequence[Lane], version: Version) -> None:
    """Build lanes of one type out of one pass over its rows, where none of them is there in any form; the first one works
    on while the others take theirs. Else, or where the disk stands in the way, nothing is done: each comes to be when it is
    asked."""
    if any(lane.is_open or lane.glance() for lane in lanes):
        return
    try:
        with ExitStack() as held:
            _build_absent(lanes, version, held)
    except BaseException as problem:
        for lane in lanes:
            lane.forget()
        if not isinstance(problem, (OSError, ValueError)):
            raise


def _build_absent(lanes: Sequence[Lane], version: Version, held: ExitStack) -> None:
    components = [lane.component(version) for lane in lanes]
    for component in components:  # in an order that is always the same, as others may do this too
        held.enter_context(component.held(alone=True))
        if component.read() is not None:
            return
    generations = [held.enter_context(component.begun()) for component in components]
    for lane, component, generation in zip(lanes, components, generations, strict=True):
        lane.begin(component.place(generation))
    for rows in lanes[0].rows.batches():
        for lane in lanes:
            lane.take(rows)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(lanes)) as beside:
        concluded = [beside.submit(lane.conclude) for lane in lanes]
        for lane, component, generation, done in reversed(
            [*zip(lanes, components, generations, concluded, strict=True)]
        ):
            done.result()
            lane.mirror(component.seal(version.revision, generation, lane.state(), None))
