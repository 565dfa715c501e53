"""Lance tables in a folder or a bucket as a target: reads publications, and publishes a delta."""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from threading import Lock

from duckkb.errors import Conflict, StateError, UsageError
from duckkb.lanes.targets.lance.address import LanceAddress
from duckkb.lanes.targets.lance.loading import LanceLoading
from duckkb.lanes.targets.lance.publication import LancePublication
from duckkb.lanes.targets.lance.store import Head, Store
from duckkb.lanes.targets.readings import Readings
from duckkb.lanes.targets.watermarks import make_behind_error, make_unpublished_error
from duckkb.ontology.model import RecordType
from duckkb.ports import Delta, Lanes, Rows, Sql, Tokenizer, Watermark
from duckkb.settings import Settings

_MOST_OPEN = 2  # the present publication and the previous one


class LanceTarget:
    """Implements `ports.Target`."""

    def __init__(self, url: str) -> None:
        self._address, self._url = LanceAddress.parse(url), url
        self._store = Store(self._address)
        self._open: dict[int, LancePublication] = {}
        self._turn = Lock()
        self._readings: Readings[LancePublication] = Readings()

    @property
    def name(self) -> str:
        return self._address.name

    @property
    def now(self) -> LancePublication:
        return self._readings.now

    @contextmanager
    def open_publication(self) -> Iterator[LancePublication]:
        publication = self._load_publication(self._find_head())
        with self._readings.use(publication):
            yield publication

    def watermark(self) -> Watermark | None:
        head = self._store.head() if self._address.at is None else self._find_head()
        return head.watermark if head else None

    def publish(self, delta: Delta) -> None:
        if self._address.at is not None:
            raise UsageError(
                "an address with ?at= reads an earlier publication; you cannot publish to it",
                code="E_URL",
                suggestion="leave ?at= out",
            )
        number, before = self._store.read_number_and_head()
        if (before.watermark if before else None) != delta.parent:
            raise self._build_conflict(delta)
        if before is not None:
            self._store.mend(before)
        loading = LanceLoading(
            self._store, delta, number + 1, os.urandom(4).hex(), lambda: self._check_number(delta, number)
        )
        if delta.is_whole:
            kinds = loading.build()
        else:
            assert before is not None, "what follows has something before it"
            kinds = loading.follow(LancePublication(self._store, before))
        files = {path: file.data for path, file in delta.configuration.items()}
        head = Head(number + 1, delta.watermark, kinds, files)
        if not self._store.swap(number, head):
            raise self._build_conflict(delta)
        self._store.settle(head, before)

    def grant(self, role: str, types: Collection[str]) -> None:
        raise UsageError(
            "Lance tables are files without roles: every reader sees every type",
            code="E_ROLE",
            suggestion="publish to PostgreSQL, or use `duckkb serve`, whose tenants see only their types",
        )

    def lanes(self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, settings: Settings) -> Lanes:
        from duckkb.lanes.targets.lance.lanes import LanceLanes

        return LanceLanes(kind, rows, tokenizer, settings, self)

    def sql(self, inner: Sql) -> Sql:
        from duckkb.lanes.sql.tables import Tables
        from duckkb.lanes.targets.lance.tables import LanceTables

        assert isinstance(inner, Tables), "which reads conditions"
        return LanceTables(inner, self)

    def close(self) -> None:
        self._open.clear()

    def _find_head(self) -> Head:
        """Return the publication that the address requests."""
        commit = self._address.at
        if commit is None:
            head = self._store.head()
            if head is None:
                raise make_unpublished_error(self.name, self._url)
            return head
        head, commits = self._store.earlier(commit)
        if head is None:
            raise StateError(
                f"{commit} is not among the commits kept at {self._address.place}",
                code="E_NOT_PUBLISHED",
                suggestion=f"kept are {', '.join(commit_name[:12] for commit_name in commits) or 'none'}",
            )
        return head

    def _load_publication(self, head: Head) -> LancePublication:
        with self._turn:
            if head.number not in self._open:
                while len(self._open) >= _MOST_OPEN:
                    self._open.pop(next(iter(self._open)))
                self._open[head.number] = LancePublication(self._store, head)
            return self._open[head.number]

    def _check_number(self, delta: Delta, number: int) -> None:
        """Raise if another publisher has published meanwhile."""
        if self._store.read_number_and_head()[0] != number:
            raise self._build_conflict(delta)

    def _build_conflict(self, delta: Delta) -> Conflict:
        head = self._store.head()
        return make_behind_error(self.name, delta.parent, head.watermark if head else None)
