"""A write costs what it changes: of a collection that is large, the lines of the parts that it changes are looked at."""

import json
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import duckkb
from duckkb import config
from duckkb.engine.base import Base
from duckkb.engine.field_statistics import Observed
from duckkb.storage import part
from duckkb.store.cache_dirs import Place
from duckkb.store.stored_rows import BaseStore
from duckkb.types.errors import DuckkbError
from tests.conftest import make_base

ALWAYS = "global: {embedding_model: none}\nsnapshot: {min_bytes: 0}\n"
COUNT, PART = 2_300, 1_000


def record(policy: str, number: int) -> dict[str, Any]:
    if policy == "vector-store":
        return {"embedding_text": f"text {number}", "value": number}
    if policy == "simple-kv":
        return {"key": f"k{number:05}", "author": "ann"}
    return {"id": f"k{number:05}", "tensor": [1.0, float(number)], "author": "ann"}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with a large collection of each policy whose writes depend on what is stored."""
    root = make_base(tmp_path_factory.mktemp("large") / "kb", ALWAYS)
    with duckkb.open(root) as kb:
        for policy in ("simple-kv", "feature-store", "vector-store"):
            kb.collections.init(policy.replace("-", "_"), policy=policy)
            kb.put(policy.replace("-", "_"), [record(policy, number) for number in range(COUNT)])
    return root


def decoded(run: Callable[[], object]) -> int:
    """How many records are made of lines while `run` runs."""
    count = 0

    def watch(frame: Any, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is part.record_of.__code__

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("policy", ["simple-kv", "feature-store", "vector-store"])
def test_a_put_of_another_process_decodes_no_part_that_it_leaves_alone(large: Path, policy: str) -> None:
    name = policy.replace("-", "_")

    def put(number: int) -> duckkb.Receipt:
        with duckkb.open(large) as kb:  # as a process does that knows nothing but what is on disk
            return kb.put(name, record(policy, number))

    assert decoded(lambda: put(COUNT)) < PART < COUNT
    assert decoded(lambda: put(COUNT + 1)) < PART
    assert decoded(lambda: put(3)) < PART, "a record that is there already"


def test_storing_a_text_looks_for_its_key_alone(large: Path) -> None:
    found = []

    def store() -> None:
        with duckkb.open(large) as kb:
            kb.put("vector_store", {"key": "mine", "embedding_text": "under a key of its own", "value": 1})
            found.append(kb.put("vector_store", {"embedding_text": "under a key of its own", "value": 2}).identities)

    assert decoded(store) < PART
    assert found == [(("mine",),)]


@pytest.mark.long
@pytest.mark.parametrize("note", [[], 7, {"format": 1}, {"format": 2, "parts": 7}])
def test_a_note_of_fields_that_is_none_is_made_anew(tmp_path: Path, note: object) -> None:
    root = make_base(tmp_path / "kb", ALWAYS)
    with duckkb.open(root) as kb:
        kb.collections.init("logs", policy="structured-logs")
        kb.put("logs", [{"id": f"l{number}", "level": "info"} for number in range(3_000)])
    notes = BaseStore(Place.locate(config.read_environment(root).cache_home, root))
    before = notes.note("fields/logs")
    assert notes.keep("fields/logs", note)
    with duckkb.open(root) as kb:
        (notice,) = kb.put("logs", {"id": "odd", "level": 7}).notices
    assert notice.code == "W_TYPE"
    assert set(notes.note("fields/logs")["parts"]) >= set(before["parts"])


values = st.one_of(st.text(max_size=3), st.integers(-9, 9), st.booleans(), st.lists(st.integers(0, 1), max_size=3))
steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "other", "hand", "delete", "new process"]),
        st.sampled_from("abcde"),
        st.sampled_from(["t", "u"]),
        values,
    ),
    min_size=1,
    max_size=12,
)


def counted_afresh(kb: "duckkb.KnowledgeBase") -> Any:
    base: Base = kb._fresh()
    kind = base.ontology.nodes["vs"]
    lines = [json.loads(line) for path in sorted(base.root.glob("data/nodes/vs/*/*.jsonl")) for line in path.open()]
    texts = {line["embedding_text"] for line in lines}
    holders = {text: {line["key"] for line in lines if line["embedding_text"] == text} for text in texts}
    return kind, Observed(kind, base.tree.records(kind)).types(), holders


@given(steps, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_what_is_known_of_fields_is_what_the_lines_say(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, str, str, Any]], rng: random.Random
) -> None:
    """Whoever wrote them: this process, another one, or somebody by hand."""
    root = make_base(tmp_path_factory.mktemp("notes") / "kb", ALWAYS)
    with duckkb.open(root) as kb:
        kb.collections.init("vs", policy="vector-store")
    mine, other = duckkb.open(root), duckkb.open(root)
    for what, key, text, value in actions:
        with suppress(DuckkbError):  # a text that stands under another key, a record that is gone
            if what == "delete":
                mine.delete("vs", key, allow_shrink=True)
            elif what == "hand" and (paths := sorted(root.glob("data/nodes/vs/*/*.jsonl"))):
                path = rng.choice(paths)
                path.write_bytes(path.read_bytes().replace(b'"embedding_text":"t"', b'"embedding_text":"u"'))
            elif what in ("put", "other"):
                kb = mine if what == "put" else other
                kb.put("vs", {"key": key, "embedding_text": text, "value": value, f"f{key}": value})
            elif what == "new process":
                mine.close()
                mine = duckkb.open(root)
        kind, types, holders = counted_afresh(mine)
        base = mine._fresh()
        assert base.observe_fields(kind).types() == types
        for text in ("t", "u"):
            assert {row.record.identity[0] for row in base.holders(kind, text)} == holders.get(text, set())
    mine.close()
    other.close()
