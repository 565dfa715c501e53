"""Where derived state lies: a folder for each base, the user's own, and nothing that a clone can bring along."""

import json
import os
import shutil
from pathlib import Path

import pytest

from duckkb import config
from duckkb.store import cache_dirs
from duckkb.store.cache_dirs import Place, Unusable


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "kb").mkdir()
    return tmp_path / "kb"


def test_a_base_has_one_place_whatever_name_leads_to_it(tmp_path: Path, root: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert Place.locate(tmp_path / "home", tmp_path / "link") == Place.locate(tmp_path / "home", root)


def test_a_base_that_was_moved_and_the_one_put_in_its_place_have_places_of_their_own(
    tmp_path: Path, root: Path
) -> None:
    before = Place.locate(tmp_path, root)
    moved = root.rename(tmp_path / "elsewhere")
    root.mkdir()
    assert len({before.own, Place.locate(tmp_path, moved).own, Place.locate(tmp_path, root).own}) == 3


def test_the_folders_are_closed_to_others(tmp_path: Path, root: Path) -> None:
    made = Place.locate(tmp_path / "a" / "home", root)
    made.make()
    made.own.chmod(0o755)
    made.make()
    folders = (made.own, made.shared, made.own.parent)
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3


@pytest.mark.parametrize("where", ["bases", "shared", "own"])
def test_a_link_where_a_folder_of_ours_should_be_is_not_followed(tmp_path: Path, root: Path, where: str) -> None:
    made = Place.locate(tmp_path / "home", root)
    target = {"bases": made.own.parent, "shared": made.shared, "own": made.own}[where]
    target.parent.mkdir(parents=True)
    (tmp_path / "other").mkdir()
    target.symlink_to(tmp_path / "other")
    with pytest.raises(Unusable, match="link"):
        made.make()
    assert not any((tmp_path / "other").iterdir())


def test_a_folder_that_everybody_may_change_is_not_used(tmp_path: Path, root: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o777)
    with pytest.raises(Unusable, match="everybody"):
        Place.locate(tmp_path / "home", root).make()


def test_a_folder_of_another_user_is_not_used(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Place.locate(tmp_path / "home", root)
    made.make()
    owner = made.own.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1, raising=False)
    with pytest.raises(Unusable, match="another user"):
        made.make()


def test_a_home_that_cannot_be_made_is_said(tmp_path: Path, root: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(Unusable, match="cannot be made"):
        Place.locate(tmp_path / "home" / "below", root).make()


def test_folders_of_bases_that_are_long_gone_are_swept_when_another_is_made(tmp_path: Path, root: Path) -> None:
    gone, away = tmp_path / "gone", tmp_path / "away"
    made = {}
    for base in (gone, away, root):
        base.mkdir(exist_ok=True)
        made[base] = Place.locate(tmp_path / "home", base)
        made[base].make()
    for base in (gone, away):
        shutil.rmtree(base)
    for base in (gone, root):
        os.utime(made[base].own, (0, 0))
    (tmp_path / "new").mkdir()
    Place.locate(tmp_path / "home", tmp_path / "new").make()
    assert [made[base].own.exists() for base in (gone, away, root)] == [False, True, True]
    told = {Path(found.root or "").name: found.is_alive for found in cache_dirs.iter_kept_folders(tmp_path / "home")}
    assert told == {"away": False, "kb": True, "new": True}


def test_the_machine_may_name_another_cache_folder_but_no_folder_of_the_base(tmp_path: Path, root: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "state" / "duckkb").mkdir(parents=True)
    settings = tmp_path / "state" / "duckkb" / "settings.json"

    def named(folder: str, **more: str) -> Path:
        settings.write_text(json.dumps({"cache_home": folder}))
        return config.read_environment(root, environ | more).cache_home

    assert named(str(tmp_path / "big")) == tmp_path / "big"
    assert named(str(tmp_path / "big"), DUCKKB_CACHE_HOME=str(tmp_path / "own")) == tmp_path / "own"
    assert named("relative") == tmp_path / ".cache" / "duckkb"
    with pytest.raises(Unusable):
        Place.locate(named(str(root / ".duckkb")), root).make()
