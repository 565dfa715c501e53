"""A part that is passed over is the part that is read line by line, whatever stands in it."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.ontology.model import EdgeType, NodeType
from duckkb.truth.files.line import encode
from duckkb.truth.files.part_rows import PartContent, PartRows
from duckkb.truth.files.read import read_part
from tests.properties.test_line_properties import LIMITS, SHAPE, TIMES, mutated_lines, near_lines, records
from tests.properties.test_tree_properties import KNOWS, edge, names

PAIR = NodeType("Pair", "pair", ("name", "lang"), {})


@st.composite
def sound_lines(draw: st.DrawFn) -> bytes:
    complete = {"__id": draw(st.integers(1, 2**53 - 1)), "__created_at": draw(TIMES), "__updated_at": draw(TIMES)}
    return encode(draw(records()) | complete, SHAPE)


def assert_read_alike(kind: NodeType | EdgeType, raw: bytes) -> bool:
    """Whether the part was passed over."""
    path = f"data/{kind.kind}s/{kind.table}/20260101/part_000.jsonl"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / path).parent.mkdir(parents=True)
        (Path(folder) / path).write_bytes(raw)
        slow, fast = (read_part(Path(folder), path, kind, LIMITS, passing=passing) for passing in (False, True))
    assert list(fast.rows) == list(slow.rows)
    assert repr(list(fast.rows)) == repr(list(slow.rows))
    assert (fast.findings, fast.canonical, fast.sorted) == (slow.findings, slow.canonical, slow.sorted)
    if not isinstance(fast.rows, PartRows):
        return False
    assert [fast.rows[at] for at in range(-len(slow.rows), 0)] == [*fast.rows[:]] == list(slow.rows)
    content = PartContent.of_rows(slow.rows)
    assert (content.text, content.head) == (fast.rows.content.text, fast.rows.content.head)
    return True


@given(
    st.lists(sound_lines(), max_size=5),
    st.lists(mutated_lines() | near_lines(), max_size=1),
    st.sampled_from(["\n", "", "\n\n", "\r\n"]),
)
@settings(max_examples=400, deadline=None)
def test_a_part_that_is_passed_over_is_as_if_it_were_read(sound: list[bytes], odd: list[bytes], end: str) -> None:
    assert_read_alike(PAIR, b"\n".join([*sound, *odd]) + end.encode())


@given(st.lists(st.tuples(names, names, st.booleans()), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_edges_are_passed_over_too(ends: list[tuple[str | int, str | int, bool]]) -> None:
    lines = [edge(source, target, typed, "2026-01-01T00:00:00.000000Z") for source, target, typed in ends]
    assert assert_read_alike(KNOWS, b"".join(line + b"\n" for line in lines))
