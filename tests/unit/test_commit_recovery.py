"""What recovery, `show`, `forward` and `abort` make of a write that was interrupted, damaged or forged."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from duckkb.storage import base_lock, clone_state, commit_protocol
from duckkb.types import errors

PART = "data/nodes/note/20260101/part_000.jsonl"
NEW = {PART: b"new\n", "data/nodes/x/20260101/part_000.jsonl": b"x\n"}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


CHANGES = [
    commit_protocol.FileChange(path, sha(b"old\n") if path == PART else None, data) for path, data in NEW.items()
]


def write(root: Path, path: str, data: bytes = b"old\n") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(data)


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file() and ".duckkb" not in p.parts
    }


def sealed(root: Path) -> Path:
    """A base whose write was interrupted right after the commit point; its stage."""
    write(root, PART)

    def interrupt(step: str) -> None:
        if step == "make the seal durable":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commit_protocol.commit(root, CHANGES, on_step=interrupt)
    (stage,) = (clone_state.folder_of(root) / clone_state.TXN).iterdir()
    return stage


@pytest.mark.parametrize("path", ["../outside", "config.yaml", ".git/hooks/post-checkout", "/elsewhere/x"])
def test_a_forged_journal_writes_nothing_outside_and_stops(tmp_path: Path, path: str) -> None:
    stage = sealed(tmp_path)
    body = (stage / "journal").read_bytes().split(b"\n")[0].replace(PART.encode(), path.encode())
    (stage / "journal").write_bytes(body + b"\n" + sha(body).encode() + b"\n")
    with pytest.raises(errors.StateError) as caught:
        commit_protocol.recover(tmp_path)
    assert caught.value.code == "E_RECOVER"
    assert tree(tmp_path) == {PART: b"old\n"}


def test_a_journal_of_another_format_is_kept(tmp_path: Path) -> None:
    stage = sealed(tmp_path)
    body = (stage / "journal").read_bytes().split(b"\n")[0].replace(b'"format": 1', b'"format": 2')
    (stage / "journal").write_bytes(body + b"\n" + sha(body).encode() + b"\n")
    for decide in (commit_protocol.recover, commit_protocol.forward, commit_protocol.abort):
        with pytest.raises(errors.StateError):
            decide(tmp_path)
    assert (stage / "journal").exists()


LEFT_BEHIND = {
    "0000.new": b"new\n",
    "0001.new": b"x\n",
    "images": b"old\nnew\nx\n",
    "journal": b'{"format": 1, "id": "1505fef8c805ea07", "entries": [{"path": "data/nodes/note/20260101/part_000.jsonl",'
    b' "old": "01d09d19c2139a46aebfb577780d123d7396e97201bc7ead210a2ebff8239dee",'
    b' "new": "7aa7a5359173d05b63cfd682e3c38487f3cb4f7f1d60659fe59fab1505977d4c", "old_size": 4, "new_size": 4,'
    b' "mode": 420}, {"path": "data/nodes/x/20260101/part_000.jsonl", "old": null,'
    b' "new": "73cb3858a687a8494ca3323053016282f3dad39d42cf62ca4e79dda2aac7d9ac", "old_size": 0, "new_size": 2,'
    b' "mode": null}], "folders": ["data/nodes/x", "data/nodes/x/20260101"]}\n'
    b"d8a231ccd7771bd6bdd80b600cd2be247c202b068ae07748a41c4bfa8a68fa2e\n",
}
"""The stage of a write that was cut off, byte for byte as version 0.1.0 left it."""


@pytest.mark.parametrize(
    "decide", [commit_protocol.recover, commit_protocol.forward, commit_protocol.abort], ids=lambda one: one.__name__
)
def test_what_an_earlier_version_sealed_is_recovered(tmp_path: Path, decide: Callable[[Path], object]) -> None:
    write(tmp_path, PART)
    for folder in ("data/nodes/x/20260101", ".duckkb/txn/1505fef8c805ea07"):
        (tmp_path / folder).mkdir(parents=True)
    for name, data in LEFT_BEHIND.items():
        (tmp_path / ".duckkb/txn/1505fef8c805ea07" / name).write_bytes(data)
    assert commit_protocol.is_pending(tmp_path)
    decide(tmp_path)
    assert tree(tmp_path) == ({PART: b"old\n"} if decide is commit_protocol.abort else NEW)
    assert not commit_protocol.is_pending(tmp_path)


def test_a_staged_file_that_was_damaged_is_made_again_from_its_image(tmp_path: Path) -> None:
    stage = sealed(tmp_path)
    (stage / "0000.new").write_bytes(b"damaged\n")
    (stage / "0001.new").unlink()
    assert commit_protocol.recover(tmp_path).action == "finished"
    assert tree(tmp_path) == NEW


def test_damage_to_all_copies_stops_and_keeps_the_old_files(tmp_path: Path) -> None:
    stage = sealed(tmp_path)
    (stage / "0000.new").write_bytes(b"damaged\n")
    (stage / "images").write_bytes(b"damaged\n")
    with pytest.raises(errors.StateError) as caught:
        commit_protocol.recover(tmp_path)
    assert caught.value.code == "E_RECOVER"
    assert (tmp_path / PART).read_bytes() == b"old\n"
    assert commit_protocol.is_pending(tmp_path)


def test_a_target_that_became_a_link_is_a_third_state(tmp_path: Path) -> None:
    sealed(tmp_path)
    (tmp_path / PART).unlink()
    (tmp_path / PART).symlink_to(tmp_path / "absent")
    for decide in (commit_protocol.recover, commit_protocol.forward, commit_protocol.abort):
        with pytest.raises(errors.StateError):
            decide(tmp_path)
    assert (tmp_path / PART).is_symlink()
    assert not (tmp_path / "absent").exists()


def test_show_forward_and_abort_without_an_interrupted_write_do_nothing(tmp_path: Path) -> None:
    write(tmp_path, PART)
    assert commit_protocol.show(tmp_path) == {"state": "none", "id": "", "files": []}
    assert (
        commit_protocol.forward(tmp_path).action
        == commit_protocol.abort(tmp_path).action
        == commit_protocol.recover(tmp_path).action
        == "none"
    )
    assert not (tmp_path / ".duckkb").exists()


def test_reading_and_writing_recover_first(tmp_path: Path) -> None:
    for name in ("reading", "writing"):
        sealed(tmp_path / name)
    with commit_protocol.lock_for_reading(tmp_path / "reading", 1) as read_only:
        assert read_only is False
        assert tree(tmp_path / "reading") == NEW
    with commit_protocol.lock_for_writing(tmp_path / "writing", 1) as recovery:
        assert recovery.action == "finished"
        assert tree(tmp_path / "writing") == NEW
        assert base_lock.holder(tmp_path / "writing") is not None
