"""The lanes over the rows of a record type. Each is created, with its libraries, at its first use."""

from threading import Lock
from typing import TYPE_CHECKING

from duckkb.lanes.files import LaneFiles
from duckkb.ontology.model import RecordType
from duckkb.ports import Rows, Tokenizer
from duckkb.settings import Settings

if TYPE_CHECKING:
    from duckkb.lanes.lexical.lexical import Lexical
    from duckkb.lanes.vectors.vectors import CosineLane


class TypeLanes:
    """Implements `ports.Lanes`."""

    def __init__(self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, settings: Settings) -> None:
        self._kind = kind
        self._rows = rows
        self._tokenizer = tokenizer
        self._settings = settings
        self._words: Lexical | None = None
        self._vectors: CosineLane | None = None
        self._turn = Lock()  # a single thread creates a lane that several request

    @property
    def words(self) -> "Lexical":
        from duckkb.lanes.lexical.lexical import Lexical

        with self._turn:
            if self._words is None:
                self._words = Lexical(self._kind, self._rows, self._tokenizer, self._settings.language)
            return self._words

    @property
    def vectors(self) -> "CosineLane":
        from duckkb.lanes.vectors.vectors import CosineLane

        with self._turn:
            if self._vectors is None:
                self._vectors = CosineLane(self._rows, self._kind.settings(self._settings).vectors)
            return self._vectors

    def discard(self) -> None:
        """Forget everything derived from entries, on disk too, because the entries were wrong."""
        with self._turn:
            self._words = self._vectors = None
        folder = self._rows.state.folder
        if folder is not None:
            for name in ("lexical", "vectors", "graph"):
                LaneFiles(folder / name, "").discard()
