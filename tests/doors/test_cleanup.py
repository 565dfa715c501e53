"""What nobody needs goes from the user's cache folder, and nothing else does, whatever folder the user has named."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import duckkb
from duckkb import config
from duckkb.operations import maintenance
from duckkb.store.cache_dirs import Place
from duckkb.types.errors import Unavailable, UsageError
from tests.conftest import NOTES, Ran, make_base, run_in

LONG_AGO = (0, 0)
NOTES_EACH = 40


class User:
    """A user with a cache folder and bases of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.cache = home / "cache"
        self.env = {"DUCKKB_CACHE_HOME": str(self.cache), "XDG_STATE_HOME": str(home / "state")}

    def base(self, name: str) -> Path:
        root = make_base(self.home / name, NOTES + "snapshot: {min_bytes: 0}\n")
        notes = ({"id": f"n{at}", "text": f"{name}第{at}条记录，" * 50} for at in range(NOTES_EACH))
        lines = "".join(json.dumps(note) + "\n" for note in notes)
        assert run_in(root, ["import", "Note", "-"], stdin=lines, env=self.env).code == 0
        assert self.found(root)
        return root

    def found(self, root: Path) -> str:
        return self.run("find", "Note", "记录", "-l", "5", at=root).out

    def run(self, *args: str, at: Path | None = None) -> Ran:
        return run_in(at or self.home, args, env=self.env)

    def own(self, root: Path) -> Path:
        return Place.locate(self.cache, root).own

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.cache.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
        return {str(path.relative_to(self.cache)): path.read_bytes() for path in found}

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.cache.rglob("*") if path.is_file())

    def machine(self, **settings: object) -> None:
        folder = self.home / "state" / "duckkb"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "settings.json").write_text(json.dumps(settings), "utf-8")


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def test_what_is_left_of_a_base_that_is_gone_goes_and_another_base_keeps_its_store(user: User) -> None:
    gone, there = user.base("gone"), user.base("there")
    left = user.own(gone)
    shutil.rmtree(gone)
    assert left.is_dir() and user.run("cleanup").line["removed"] == [], "its disk may be mounted again"
    os.utime(left, LONG_AGO)
    answer = user.found(there)
    before = user.files()
    planned = user.run("cleanup", "--dry-run").line
    assert user.files() == before
    (told,) = planned["removed"]
    assert (told["path"], str(gone) in told["what"]) == (str(left), True)
    assert planned["freed"] == told["bytes"] > 10_000
    size = user.bytes
    done = user.run("cleanup").line
    assert not left.exists() and done["removed"] == planned["removed"]
    assert done["freed"] == planned["freed"] and done["bytes"] == user.bytes == size - done["freed"]
    assert [(one["base"], one["gone"]) for one in done["bases"]] == [(str(there), False)]
    kept = {path: data for path, data in before.items() if left.name not in path}
    assert user.files() == kept and user.found(there) == answer
    assert user.run("cleanup").line["removed"] == []


def test_now_does_not_wait_for_a_week(user: User) -> None:
    gone = user.base("gone")
    left = user.own(gone)
    shutil.rmtree(gone)
    (told,) = user.run("cleanup").line["bases"]
    assert (told["base"], told["gone"], left.is_dir()) == (str(gone), True, True)
    assert [one["path"] for one in user.run("cleanup", "--now").line["removed"]] == [str(left)]
    assert not left.exists()


def test_folders_beside_duckkbs_own_are_nobodys_business(user: User) -> None:
    root = user.base("there")
    foreign = ["bases/my photos/a.jpg", "bases/base.json", "shared/notes.txt", "models/mine/b", "papers/c", ".gone-d/e"]
    for name in foreign:
        (user.cache / name).parent.mkdir(parents=True, exist_ok=True)
        (user.cache / name).write_text("mine", "utf-8")
    for path in (user.cache / "bases").iterdir():
        os.utime(path, LONG_AGO)
    old = user.cache / "models" / ("0" * 12)
    old.mkdir()
    (old / "q4.onnx").write_bytes(bytes(100))
    done = user.run("cleanup", "--now", "--limit", "1").line
    assert {Path(one["path"]) for one in done["removed"]} <= {old, user.cache / "shared" / "search_cache.sqlite"}
    assert not old.exists()
    assert all((user.cache / name).read_text("utf-8") == "mine" for name in foreign)
    user.base("another")  # which sweeps by itself
    assert all((user.cache / name).read_text("utf-8") == "mine" for name in foreign)
    assert user.own(root).is_dir()


def test_a_cache_beyond_the_machines_limit_loses_what_was_not_used_for_longest(user: User) -> None:
    root = user.base("there")
    answer, before = user.found(root), user.run("status", at=root).line["cache"]["bytes"]
    assert user.run("cleanup").line["removed"] == []
    user.machine(cache_limit="64 KB")
    planned = user.run("cleanup", "--dry-run", at=root).line
    assert planned["limit"] == 65_536 and "not used for longest" in planned["removed"][0]["what"]
    done = user.run("cleanup", at=root).line
    assert done["freed"] > 0 and user.run("status", at=root).line["cache"]["bytes"] < before
    assert user.found(root) == answer


@pytest.mark.long
def test_what_is_made_beyond_the_limit_pushes_out_what_is_older(user: User) -> None:
    roots = [user.base(f"base {number}") for number in range(2)]
    user.machine(cache_limit=user.bytes * 5 // 4)  # which two have room in, and a third has not
    roots.append(user.base("base 2"))
    (cache,) = (user.cache / "shared").glob("*.sqlite")
    with closing(sqlite3.connect(cache)) as connection:
        texts = [text for (text,) in connection.execute("SELECT CAST(payload AS TEXT) FROM row")]
    count = [sum(text.startswith(f"base {number} ") for text in texts) for number in range(3)]
    assert count[0] < NOTES_EACH == count[2], "the oldest went, the newest are all there"
    assert all(user.found(root) for root in roots)


def test_a_limit_that_is_no_size_is_refused_and_a_base_that_is_none_too(user: User, notes: Path) -> None:
    for limit in ("much", "-1", "0", "1e400"):
        ran = user.run("cleanup", "--limit", limit, "--json")
        assert (ran.code, ran.error["code"]) == (2, "E_USAGE"), limit
    with pytest.raises(UsageError):
        maintenance.cleanup(notes, limit="")
    assert user.run("--kb", str(user.home / "nowhere"), "cleanup").code == 1


def test_where_nothing_was_kept_nothing_is_made(user: User) -> None:
    done = user.run("cleanup").line
    assert (done["removed"], done["bytes"], done["freed"], user.cache.exists()) == ([], 0, 0, False)


@pytest.mark.parametrize("name", ["bases", "shared"])
def test_a_link_where_a_folder_of_ours_should_be_is_not_followed(user: User, name: str, notes: Path) -> None:
    victim = user.home / "victim"
    folder = victim / ("a" * 24 + "-1-2")
    folder.mkdir(parents=True)
    os.utime(folder, LONG_AGO)
    user.cache.mkdir()
    (user.cache / name).symlink_to(victim)
    ran = user.run("cleanup", "--now", "--json")
    assert (ran.code, ran.error["code"]) == (1, "E_IO") and folder.is_dir()


def test_a_base_that_is_open_answers_on_while_its_rows_go(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    root = user.base("there")
    monkeypatch.setenv("DUCKKB_CACHE_HOME", str(user.cache))
    with duckkb.open(root) as kb:
        before = kb.find("Note", "记录", limit=5)
        assert maintenance.cleanup(root, limit=1).removed
        assert kb.find("Note", "记录", limit=5) == before
        kb.put("Note", {"id": "new", "text": "新的记录"})
        assert kb.find("Note", "新的", limit=5)[0].identity == "new"


def test_status_says_where_the_store_lies_and_what_it_takes(user: User) -> None:
    root = user.base("there")
    told = user.run("status", at=root).line
    own = user.own(root)
    assert told["store"]["path"] == str(own) and told["store"]["bytes"] > 10_000
    assert told["cache"]["path"] == str(user.cache / "shared") and told["cache"]["bytes"] > 10_000


def test_sizes_are_read_as_people_write_them() -> None:
    read = {size: config.byte_count(size) for size in ("1k", "1 KB", "1KiB", "2.5 gb", "7", 7)}
    assert read == {"1k": 1024, "1 KB": 1024, "1KiB": 1024, "2.5 gb": 5 << 29, "7": 7, 7: 7}
    assert [config.byte_count(size) for size in (None, True, "", "x", "-1", 0, "9" * 400, [], {})] == [None] * 9


def test_where_the_cache_folder_is_another_users_it_is_left_alone(
    user: User, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user.cache / "shared").mkdir(parents=True)
    monkeypatch.setenv("DUCKKB_CACHE_HOME", str(user.cache))
    owner = user.cache.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1, raising=False)
    with pytest.raises(Unavailable, match="another user"):
        maintenance.cleanup(notes)
    assert (user.cache / "shared").is_dir()
