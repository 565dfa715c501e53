"""Whatever becomes of a file or folder below the folder of a base in the user's cache, the next question is answered right."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import duckkb
from tests.campaigns.snapshot_ground import Place
from tests.harness import oracle
from tests.harness.campaign import Campaign

_DRAWN = re.compile(r"(?<=/g)[0-9a-f]{12}|[0-9a-f]{32}|(?<=-)[0-9a-f]{12}|(?<=-)\d+")
Harm = Callable[[Path, Place, Random], None]


def truncated(path: Path, place: Place, rng: Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size + 1))


def flipped(path: Path, place: Place, rng: Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)


def longer(path: Path, place: Place, rng: Random) -> None:
    with path.open("ab") as file:
        file.write(rng.randbytes(100))


def anothers(path: Path, place: Place, rng: Random) -> None:
    """What another file of that sort holds."""
    others = [other for other in files(place) if other != path and other.suffix == path.suffix]
    path.write_bytes(rng.choice(others or [path]).read_bytes())


def copied(path: Path, place: Place, rng: Random) -> None:
    shutil.copy2(path, place.folder / "copy")
    (place.folder / "copy").replace(path)


def deleted(path: Path, place: Place, rng: Random) -> None:
    path.unlink()


def linked(path: Path, place: Place, rng: Random) -> None:
    away = place.folder / f"away {path.name}"
    shutil.move(path, away)
    path.symlink_to(away)


def dangling(path: Path, place: Place, rng: Random) -> None:
    path.unlink()
    path.symlink_to(place.folder / "nowhere")


def folder(path: Path, place: Place, rng: Random) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def fifo(path: Path, place: Place, rng: Random) -> None:
    path.unlink()
    os.mkfifo(path)


def unreadable(path: Path, place: Place, rng: Random) -> None:
    path.chmod(0)


FILES: tuple[Harm, ...] = (
    truncated, flipped, longer, anothers, copied, deleted, linked, dangling, folder, fifo, unreadable,
)  # fmt: skip


def removed(path: Path, place: Place, rng: Random) -> None:
    shutil.rmtree(path)


def a_file(path: Path, place: Place, rng: Random) -> None:
    shutil.rmtree(path)
    path.write_text("x")


def emptied(path: Path, place: Place, rng: Random) -> None:
    shutil.rmtree(path)
    path.mkdir()


def closed(path: Path, place: Place, rng: Random) -> None:
    path.chmod(0)


def read_only(path: Path, place: Place, rng: Random) -> None:
    path.chmod(0o500)


FOLDERS: tuple[Harm, ...] = (removed, a_file, emptied, closed, read_only, linked)


def files(place: Place) -> list[Path]:
    return sorted(path for path in place.snapshot.rglob("*") if path.is_file())


def kind_of(path: Path, place: Place) -> str:
    """What it is for: without those parts of its name that are drawn."""
    return _DRAWN.sub("", path.relative_to(place.snapshot).as_posix())


def judge(place: Place, told: object, harm: Harm) -> None:
    """Answers are right, also where truth has changed since; nothing outside was touched."""
    away = {path: path.read_bytes() for path in place.folder.glob("away *") if path.is_file()}
    confined = {"confined": True}
    # A line that no part has any more is not read, and what is no file or folder of ours is not removed unasked.
    odd = harm not in (truncated, longer, copied, deleted, removed, emptied)
    place.judge(told, may_need=odd, **confined)
    place.turn()
    place.judge((told, "after a change"), may_need=odd, **confined)
    assert away == {path: path.read_bytes() for path in place.folder.glob("away *") if path.is_file()}, told


def mend(place: Place) -> None:
    """What nobody is meant to mend: begin anew."""
    for path in [place.snapshot, *place.snapshot.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    place.drop()
    for path in place.folder.glob("away *"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    place.judge("anew")
    assert place.snapshot.is_dir() and not place.snapshot.is_symlink(), "what is damaged next is there"


@pytest.mark.parametrize("harm", FILES, ids=lambda harm: harm.__name__)
def test_a_file_that_is_damaged_changes_no_answer(harm: Harm, campaign: Campaign, place: Place) -> None:
    rng = campaign.random(f"damage {harm.__name__}")
    kinds = sorted({kind_of(path, place) for path in files(place)})
    for kind in kinds if campaign.full else rng.sample(kinds, 1):
        for _ in range(campaign.pick(1, 4 if harm in (flipped, truncated) else 1)):
            path = next((path for path in files(place) if kind_of(path, place) == kind), None)
            if path is None:
                break
            harm(path, place, rng)
            judge(place, (harm.__name__, kind), harm)
            campaign.count("damaged files of a snapshot")
        if harm not in (truncated, longer, copied, deleted):
            mend(place)


@pytest.mark.parametrize("harm", FOLDERS, ids=lambda harm: harm.__name__)
def test_a_folder_that_is_damaged_changes_no_answer(harm: Harm, campaign: Campaign, place: Place) -> None:
    rng = campaign.random(f"folders {harm.__name__}")
    found = [place.snapshot, *sorted(path for path in place.snapshot.rglob("*") if path.is_dir())]
    kinds = sorted({"." if path == place.snapshot else kind_of(path, place) for path in found})
    for kind in kinds if campaign.full else rng.sample(kinds, 1):
        folders = [path for path in place.snapshot.rglob("*") if path.is_dir() and kind_of(path, place) == kind]
        harm(folders[0] if folders else place.snapshot, place, rng)
        judge(place, (harm.__name__, kind), harm)
        campaign.count("damaged folders of a snapshot")
        mend(place)


def flip_line(place: Place, name: str) -> None:
    """Turn a bit in a stored line, within the file that processes have open."""
    for path in files(place):
        data = path.read_bytes() if path.name.startswith("store-") else b""
        for found in re.finditer(f'"id":"{name}"'.encode(), data):
            with path.open("r+b") as file:
                file.seek(found.start() + 6)
                file.write(b"~")


def test_an_open_base_whose_store_is_damaged_answers_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.judge("before")
    monkeypatch.setenv("DUCKKB_CACHE_HOME", str(place.folder / "cache"))
    with duckkb.open(place.root) as kb:
        flip_line(place, "n41")
        assert kb.get("Note", "n41")["id"] == "n41"
        assert len(kb.find("Note", "common", limit=100)) == len(place.expected()["words"])
    place.judge("after", may_need=True)  # a line comes out of its file: nobody may have met the damage yet


@pytest.mark.parametrize("args", [("put", "Note", '{"id": "n42", "size": 1}'), ("delete", "Note", "n43")])
def test_a_write_that_meets_a_damaged_line_is_done(args: tuple[str, ...], campaign: Campaign, place: Place) -> None:
    for name in ("n42", "n43", "n44", "n5", "n19") if campaign.full else ("n42", "n5"):
        place.turn(0)
        place.judge("before", may_need=True)
        before = oracle.tree(place.root)
        flip_line(place, name)
        done = place.run(args)
        assert done.code == 0 and oracle.tree(place.root) != before, (name, done)
        place.judge((args, name), may_need=True)  # for a line that no part has any more
        assert place.run(args).code == (1 if args[0] == "delete" else 0)
