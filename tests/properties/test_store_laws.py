"""A tree that comes out of the store is the tree that a fresh load gives, whatever became of the files in between."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.engine.loading import Ground, Opened, load
from duckkb.settings import Settings
from duckkb.store.lines import StoredLines
from duckkb.store.place import Place
from duckkb.truth.files.read import list_changed_parts, reload
from duckkb.truth.files.tree import Tree
from tests.properties.test_tree_properties import ONTOLOGY, edits, facts, states, write
from tests.properties.test_tree_properties import read as read_afresh

ALWAYS = Settings(snapshot_bytes=0)
steps = st.lists(st.tuples(edits, st.sampled_from(["cold", "warm", "lost", "both"])), min_size=1, max_size=5)
Mirror = dict[str, dict[int, bytes]]


def ground(root: Path) -> Ground:
    return Ground(root, ONTOLOGY, ALWAYS, place(root), 10.0)


def place(root: Path) -> Place:
    return Place.of(root / "home", root)


def lines(tree: Tree) -> Mirror:
    return {kind.name: {row.record.id: row.line for row in tree.rows(kind)} for kind in ONTOLOGY}


def follow(opened: Opened, root: Path) -> Opened:
    """As a process does that stays open: take in what changed, and write it down."""
    assert opened.lines is not None, opened.reason
    tree, lines = opened.tree, opened.lines
    paths = list_changed_parts(tree, root)
    with lines.writing(10.0) as is_current:
        if is_current:
            lines.save(tree, tree.replace(reload(tree, root, paths)), paths)
    if is_current:
        lines.lean(tree)
    return opened if is_current else load(ground(root))


def check_versions(kept: StoredLines | None, now: Mirror, seen: dict[tuple[str, str, int], dict[int, bytes]]) -> None:
    """Of each revision that was seen, the log names every record that has changed since."""
    assert kept is not None
    for kind in ONTOLOGY:
        version = kept.version(kind, lambda lane: "", str)
        if version is None:
            continue
        for (name, store, revision), then in seen.items():
            if (name, store) == (kind.name, version.store) and (found := version.changed(revision)) is not None:
                own = now[kind.name]
                assert {key for key in own.keys() | then.keys() if own.get(key) != then.get(key)} <= found
        seen[kind.name, version.store, version.revision] = now[kind.name]


@pytest.mark.long
@given(states, steps)
@settings(max_examples=150, deadline=None)
def test_a_tree_out_of_the_store_is_the_tree_of_the_files(
    first: dict[str, list[bytes] | None], later: list[tuple[dict[str, list[bytes] | None], str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, first)
        opened = load(ground(root))
        seen: dict[tuple[str, str, int], dict[int, bytes]] = {}
        assert list(facts(opened.tree)) == list(facts(read_afresh(root)))
        for state, way in later:
            write(root, state)
            if way == "lost":
                shutil.rmtree(root / "home")
            if way == "both":  # another process is first to see the change
                load(ground(root))
            stays = way in ("warm", "both")
            opened = follow(opened, root) if stays else load(ground(root))
            fresh = read_afresh(root)
            assert list(facts(opened.tree)) == list(facts(fresh))
            assert {kind.name: sorted(opened.tree.ids(kind)) for kind in ONTOLOGY} == {
                kind.name: sorted(row.record.id for row in fresh.rows(kind)) for kind in ONTOLOGY
            }
            check_versions(opened.lines, lines(fresh), seen)
            again = load(ground(root))
            assert list(facts(again.tree)) == list(facts(fresh))
