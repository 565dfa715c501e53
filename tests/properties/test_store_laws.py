"""A tree that comes out of the store is the tree that a fresh load gives, whatever became of the files in between."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.engine.base import Ground, Opened, load_base
from duckkb.storage.read import list_changed_parts, reload
from duckkb.store.cache_dirs import Place
from duckkb.store.mirrored_files import Inventory
from duckkb.types.settings import Settings
from tests.properties.test_tree_properties import ONTOLOGY, Mirror, check_states, edits, facts, states, write
from tests.properties.test_tree_properties import read as read_afresh

ALWAYS = Settings(snapshot_bytes=0)
steps = st.lists(st.tuples(edits, st.sampled_from(["cold", "warm", "lost", "both"])), min_size=1, max_size=5)


def ground(root: Path) -> Ground:
    return Ground(root, ONTOLOGY, ALWAYS, place(root), 10.0)


def place(root: Path) -> Place:
    return Place.locate(root / "home", root)


def follow(opened: Opened, root: Path) -> Opened:
    """As a process does that stays open: take in what changed, and write it down."""
    assert opened.lines is not None, opened.reason
    tree, lines = opened.tree, opened.lines
    paths = list_changed_parts(tree, root)
    with lines.begin_write(10.0) as is_current:
        if is_current:
            tree.replace(reload(tree, root, paths))
            lines.save(tree, paths)
    if is_current:
        lines.lean(tree)
    return opened if is_current else load_base(ground(root))


@pytest.mark.long
@given(states, steps)
@settings(max_examples=150, deadline=None)
def test_a_tree_out_of_the_store_is_the_tree_of_the_files(
    first: dict[str, list[bytes] | None], later: list[tuple[dict[str, list[bytes] | None], str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, first)
        opened = load_base(ground(root))
        seen: list[tuple[dict[str, Inventory], Mirror]] = []
        assert list(facts(opened.tree)) == list(facts(read_afresh(root)))
        for state, way in later:
            write(root, state)
            if way == "lost":
                shutil.rmtree(root / "home")
            if way == "both":  # another process is first to see the change
                load_base(ground(root))
            stays = way in ("warm", "both")
            opened = follow(opened, root) if stays else load_base(ground(root))
            fresh = read_afresh(root)
            assert list(facts(opened.tree)) == list(facts(fresh))
            assert {kind.name: sorted(opened.tree.ids(kind)) for kind in ONTOLOGY} == {
                kind.name: sorted(row.record.id for row in fresh.rows(kind)) for kind in ONTOLOGY
            }
            check_states(opened.tree, fresh, seen)
            again = load_base(ground(root))
            assert list(facts(again.tree)) == list(facts(fresh))
