"""A tree that comes out of a snapshot is the tree that a fresh load gives, whatever became of the files in between."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.engine.loading import Ground, Opened, load
from duckkb.settings import Settings
from duckkb.truth.files.read import changed, reload
from duckkb.truth.files.tree import Tree
from duckkb.truth.snapshot.snapshot import Snapshot
from tests.properties.test_tree_properties import ONTOLOGY, edits, facts, states, write
from tests.properties.test_tree_properties import read as read_afresh

ALWAYS = Settings(snapshot_bytes=0)
steps = st.lists(st.tuples(edits, st.sampled_from(["cold", "warm", "eased", "lost", "both"])), min_size=1, max_size=5)
Mirror = dict[str, dict[int, bytes]]


def ground(root: Path) -> Ground:
    (root / ".duckkb").mkdir(exist_ok=True)
    return Ground(root, ONTOLOGY, ALWAYS, 10.0)


def lines(tree: Tree) -> Mirror:
    return {kind.name: {row.record.id: row.line for row in tree.rows(kind)} for kind in ONTOLOGY}


def follow(opened: Opened, root: Path, *, eased: bool) -> Opened:
    """As a process does that stays open: take in what changed, write it down, and hold it no longer where that eases it."""
    assert opened.snapshot is not None
    tree, snapshot = opened.tree, opened.snapshot
    paths = changed(tree, root)
    with snapshot.writing(10.0) as is_current:
        if is_current:
            snapshot.save(tree, tree.replace(reload(tree, root, paths)), paths)
            if eased:
                snapshot.relieve(tree, beyond=-1)
    return opened if is_current else load(ground(root))


def check_versions(snapshot: Snapshot | None, now: Mirror, seen: dict[tuple[str, str, int], dict[int, bytes]]) -> None:
    """Of each revision that was seen, the log names every record that has changed since."""
    assert snapshot is not None
    for kind in ONTOLOGY:
        version = snapshot.version(kind)
        if version is None:
            continue
        for (name, store, revision), then in seen.items():
            if (name, store) == (kind.name, version.store) and (found := version.changed(revision)) is not None:
                own = now[kind.name]
                assert {key for key in own.keys() | then.keys() if own.get(key) != then.get(key)} <= found
        seen[kind.name, version.store, version.revision] = now[kind.name]


@given(states, steps)
@settings(max_examples=150, deadline=None)
def test_a_tree_out_of_a_snapshot_is_the_tree_of_the_files(
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
                shutil.rmtree(root / ".duckkb/snapshot", ignore_errors=True)
            if way == "both":  # another process is first to see the change
                load(ground(root))
            stays = way in ("warm", "eased", "both")
            opened = follow(opened, root, eased=way == "eased") if stays else load(ground(root))
            fresh = read_afresh(root)
            assert list(facts(opened.tree)) == list(facts(fresh))
            assert {kind.name: sorted(opened.tree.ids(kind)) for kind in ONTOLOGY} == {
                kind.name: sorted(row.record.id for row in fresh.rows(kind)) for kind in ONTOLOGY
            }
            check_versions(opened.snapshot, lines(fresh), seen)
            again = load(ground(root))
            assert list(facts(again.tree)) == list(facts(fresh))
