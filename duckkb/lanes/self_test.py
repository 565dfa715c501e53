"""Tests of the engines by themselves: DuckDB answers and opens no files, and Tantivy finds indexed records.

Each test raises AssertionError with the problem, by `raise`, which `python -O` keeps.
"""

from pathlib import Path

from duckkb.entries import IndexEntry
from duckkb.lanes.memory_rows import MemoryRows
from duckkb.lanes.sql.process.confined import Confined
from duckkb.lanes.sql.process.engine import Rejected
from duckkb.ontology.model import NodeType, SearchField
from duckkb.ports import Row, Tokenizer
from duckkb.queries import LexicalQuery
from duckkb.records import Record
from duckkb.settings import Settings

_TIME = "2026-01-01T00:00:00.000000Z"
_KIND = NodeType("Trial", "trial", ("id",), {"properties": {"text": {"type": "string"}}}, (SearchField("text"),))
_TEXTS = {1: "a journal is sealed before files change", 2: "备份是数据在另一处的副本"}
_SECONDS = 10.0


def check_confinement() -> None:
    """Check that DuckDB computes, and neither reads a file nor changes a setting even without duckkb's own guards."""
    engine = Confined()
    try:
        if list(engine.ids("SELECT 40 + 2", _SECONDS)) != [42]:
            raise AssertionError("DuckDB does not compute")
        here = str(Path(__file__)).replace("'", "''")
        for action, statement in (
            ("read a file", f"SELECT * FROM read_text('{here}')"),
            ("took a setting", "SET threads=1"),
        ):
            try:
                engine.define(statement)
            except Rejected:
                continue
            raise AssertionError(f"DuckDB is not confined: it {action}")
    finally:
        engine.drop()


def lexical(tokenizer: Tokenizer) -> None:
    """Check that Tantivy finds an English and a Chinese record by their words, and nothing by an unknown word."""
    # imported here, so that DuckDB is tested even if Tantivy cannot be loaded
    from duckkb.lanes.lexical.lexical import Lexical

    rows = MemoryRows(_build_row(number, text, tokenizer) for number, text in _TEXTS.items())
    lane = Lexical(_KIND, rows, tokenizer, Settings().language)
    for expected_id, words in ((1, "journal"), (2, "数据"), (None, "banana")):
        if [hit.id for hit in lane.ask(LexicalQuery(words), 10)] != ([expected_id] if expected_id else []):
            raise AssertionError(f"Tantivy does not find records by their words: asked for {words}")


def _build_row(number: int, text: str, tokenizer: Tokenizer) -> Row:
    record = Record(_KIND.name, number, (str(number),), {"id": str(number), "text": text}, _TIME, _TIME)
    return Row(record, (IndexEntry("text", 0, text, tokenizer.tokenize([text])[0]),))
