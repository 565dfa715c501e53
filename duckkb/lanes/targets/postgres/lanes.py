"""The lanes of a type over a publication in PostgreSQL."""

from typing import TYPE_CHECKING

from duckkb.lanes.targets.postgres.vectors import PostgresVectors
from duckkb.lanes.targets.postgres.words import PostgresWords
from duckkb.ontology.model import RecordType
from duckkb.ports import Rows, Tokenizer
from duckkb.settings import Settings

if TYPE_CHECKING:
    from duckkb.lanes.targets.postgres.target import PostgresTarget


class PostgresLanes:
    """Implements `ports.Lanes`."""

    def __init__(
        self, kind: RecordType, rows: Rows, tokenizer: Tokenizer, settings: Settings, target: "PostgresTarget"
    ) -> None:
        self.words = PostgresWords(kind, rows, tokenizer, settings.language, target)
        self.vectors = PostgresVectors(kind, kind.settings(settings).vectors, target)

    def discard(self) -> None:
        """Do nothing: this process keeps no files of these lanes."""
