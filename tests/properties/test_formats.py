"""Any record comes back from csv and md as it was, and a table's lines are as wide as its terminal at most."""

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from duckkb.cli import record_formats
from tests.read_tables import read_csv, read_markdown, same, spread

NAMES = st.text(st.characters(codec="utf-8"), max_size=8)
TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from('|\\`\n\r",*_[]<&~-备🦆'), max_size=30)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(NAMES, LEAVES, max_size=3)
RECORDS = st.lists(st.dictionaries(NAMES, VALUES, max_size=6), min_size=1, max_size=6).filter(any)


@given(RECORDS)
def test_every_field_of_every_record_comes_back_from_csv(records: list[dict[str, Any]]) -> None:
    columns = record_formats.fields(records)
    assert sorted(columns) == sorted({name for record in records for name in record})
    header, *rows = read_csv("".join(f"{line}\n" for line in record_formats.format_csv(records, columns).lines))
    assert header == columns
    assert all(same(cells, header, record) for cells, record in zip(rows, records, strict=True))


@given(RECORDS)
def test_every_field_of_every_record_comes_back_from_a_markdown_table(records: list[dict[str, Any]]) -> None:
    columns = record_formats.fields(records)
    header, *rows = read_markdown(
        "".join(f"{line}\n" for line in record_formats.format_markdown(records, columns).lines)
    )
    assert header == columns
    assert all(same(cells, header, record) for cells, record in zip(rows, records, strict=True))


@given(RECORDS, st.integers(1, 120))
def test_a_table_has_one_line_a_record_that_fits_where_columns_can_be_cut_so_far(
    records: list[dict[str, Any]], width: int
) -> None:
    columns = record_formats.fields(records)
    drawn = record_formats.format_table(records, columns, width)
    assert len(drawn.lines) == len(records) + 2
    assert not any(re.search("[\x00-\x1f\x7f-\x9f\u2028-\u202e]", line) for line in drawn.lines)
    assert max(spread(line) for line in drawn.lines) <= max(width, 10 * len(columns) - 2)
