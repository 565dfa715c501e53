"""Makes the pictures of docs/reading-room.md: each page of a served copy of the repository's own base, in a headless Chromium.

usage: python docs/reading_room.py [--check]

`--check` makes them beside the repository and compares which there are, that none is empty, that no page had a problem, and how large all
of them together are; not their points, as fonts differ from machine to machine.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.browser import Page, browsing, chromium
from tests.harness.servers import served

ROOT = Path(__file__).resolve().parent.parent
PAGE, PICTURES = ROOT / "docs/reading-room.md", ROOT / "docs/images"
BASE = ("config.yaml", ".gitattributes", "ontology", "data")
MOST_BYTES, LEAST_BYTES = 1_500_000, 4_000
WIDE, PHONE = (1200, 860), (390, 780)
_RECORD = "record?type=Concept&id=write-journal"
_PREVIEW = "document.querySelector('button[value=preview]').click()"
"""Leads to another page."""
_CHANGE = "change?branch=clearer-fsync"
_OPEN = "document.querySelector({!r}).open = true"
_EVALUATE = "document.querySelector('#evaluate button')?.click()"
_GO_TO = "document.querySelector({!r}).scrollIntoView({{ behavior: 'instant' }})"
Shot = tuple[str, tuple[int, int], bool, tuple[str, ...]]
SHOTS: dict[str, Shot] = {
    "search": ("search?q=what+survives+a+crash&type=Concept", WIDE, False, (_OPEN.format(".why"),)),
    "filter": ("search?type=Decision&f.topic=storage", WIDE, True, ()),
    "records": ("records", WIDE, False, ()),
    "record": (_RECORD, WIDE, False, ()),
    "neighborhood": (
        _RECORD,
        WIDE,
        True,
        ("{ const s = document.querySelector('[name=depth]'); s.value = '2'; s.dispatchEvent(new Event('change', { bubbles: true })); }",
         _GO_TO.format("#neighborhood")),
    ),
    "history": (f"{_RECORD}", WIDE, False, ("document.querySelectorAll('details.part').forEach((one, at) => { one.open = at > 0; })",
                                             _GO_TO.format("details.part:nth-of-type(2)"))),
    "compare": ("record/compare?type=Concept&id=write-journal", WIDE, False, ()),
    "changes": ("changes", WIDE, False, ()),
    "change": (_CHANGE, (1400, 1000), False, (_OPEN.format("details[data-part]"),)),
    "beside": (f"{_CHANGE}&view=beside", (1400, 800), True, ()),
    "edit": ("edit?type=Concept&id=fsync", WIDE, False, (
        "document.querySelector('[name=\"f.summary\"]').value = 'Asks the system to have a file on disk before it goes on.'",
        _PREVIEW,
    )),
    "ontology": ("ontology", WIDE, False, ()),
    "type": ("ontology/type?type=Concept", WIDE, True, ()),
    "health": ("health", WIDE, False, (_GO_TO.format("#findings"),)),
    "quality": ("quality", WIDE, False, (_EVALUATE,)),
    "phone": (_RECORD, PHONE, True, ()),
    "chinese": ("search?q=%E5%B4%A9%E6%BA%83%E4%B9%8B%E5%90%8E&type=Concept", PHONE, False, ()),
}  # fmt: skip
"""By name: the address, the window, whether it is dark, and what a reader does there."""
MERGING: dict[str, Shot] = {"conflicts": ("conflicts", WIDE, False, ())}
"""Those of a merge that has stopped."""
BRANCHES = {
    "clearer-fsync": {"id": "fsync", "summary": "Has the system write a file through to the disk; without it a power failure may undo what seemed saved."},
    "shorter-journal": {"id": "write-journal", "summary": "The list of file replacements that makes several files change together."},
}  # fmt: skip
"""What is to be reviewed: branches, each with what it makes of a record."""


def main() -> int:
    browser = chromium()
    if browser is None:
        print("the pictures need a Chromium: apt-get install -y chromium", file=sys.stderr)
        return 1
    check = "--check" in sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="duckkb-room-") as folder:
        os.environ |= {"XDG_STATE_HOME": f"{folder}/state", "DUCKKB_CACHE_HOME": f"{folder}/cache"}
        root = _copy(Path(folder) / "kb")
        into = Path(folder) / "pictures" if check else PICTURES
        into.mkdir(exist_ok=True)
        with served(root, "serve", "--open", "--edit", log=Path(folder, "log")) as server, browsing(browser) as tab:
            tab.visit(str(server.told["open"]))
            pages = f"{server.told['url']}/web/"
            problems = _taken(tab, pages, into, SHOTS)
            subprocess.run(
                [*_own(root), "merge", "shorter-journal"], capture_output=True
            )  # it stops, so that it ends with 1
            problems += _taken(tab, pages, into, MERGING)
        return _said(into, problems)


def _copy(root: Path) -> Path:
    """The base with one change of a record that is committed, so that there are two versions."""
    root.mkdir()
    for name in BASE:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, root / name)
    change = '{"id": "write-journal", "summary": "A small file that lists, with hashes, which files a write replaces; once it is renamed into place, the write has happened."}'
    git = [
        "git",
        "-C",
        str(root),
        "-c",
        "user.name=Mo Editor",
        "-c",
        "user.email=mo@example.org",
        "-c",
        "commit.gpgsign=false",
    ]
    when = {"GIT_AUTHOR_DATE": "2026-11-22T12:00:00Z", "GIT_COMMITTER_DATE": "2026-11-22T12:00:00Z"}
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "env": os.environ | when}
    subprocess.run([*git, "init", "-q"], **quiet)
    for key in ("user.name=Mo Editor", "user.email=mo@example.org"):
        subprocess.run([*git, "config", *key.split("=")], **quiet)
    commit = [*git, "commit", "-q", "-m"]
    subprocess.run([*git, "add", "-A"], **quiet)
    subprocess.run([*commit, "The base as it is"], **quiet)
    for name, record in BRANCHES.items():
        propose = [
            "propose",
            "--branch",
            name,
            "-m",
            "Said more clearly",
            "put",
            "Concept",
            json.dumps(record),
            "--merge",
        ]
        subprocess.run([*_own(root), *propose], stderr=subprocess.DEVNULL, **quiet)
    subprocess.run([*_own(root), "put", "Concept", change, "--merge"], **quiet)
    subprocess.run([*git, "add", "-A"], **quiet)
    subprocess.run([*commit, "A shorter summary"], **quiet)
    return root


def _own(root: Path) -> list[str]:
    return [sys.executable, "-m", "duckkb", "--kb", str(root)]


def _taken(tab: Page, root: str, into: Path, shots: dict[str, Shot]) -> list[str]:
    problems = []
    for name, (address, size, is_dark, acts) in shots.items():
        tab.size(*size)
        tab.dark(is_dark)
        if name in ("chinese", "conflicts"):
            language = "zh" if name == "chinese" else "en"
            tab.visit(f"{root}changes")
            tab.run(f"document.querySelector('[name=language][value={language}]').click()")
            spoken = f"document.documentElement?.lang === '{language}' && document.readyState === 'complete'"
            tab.wait(lambda spoken=spoken: tab.run(spoken))
        tab.problems.clear()
        tab.visit(root + address)
        _settled(tab)
        for act in acts:
            before = tab.loaded
            tab.run(act)
            if act == _PREVIEW:
                tab.wait(lambda before=before: tab.loaded > before)
            _settled(tab)
        problems += [f"{name}: {one}" for one in tab.problems]
        (into / f"room-{name}.webp").write_bytes(tab.picture("webp", quality=72))
    return problems


def _settled(tab: Page) -> None:
    def is_still() -> object:
        return tab.run("document.readyState === 'complete' && document.querySelectorAll('[aria-busy]').length === 0")

    tab.wait(is_still)
    tab.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")


def _said(into: Path, problems: list[str]) -> int:
    made = {path.name: path.stat().st_size for path in sorted(into.glob("room-*.webp"))}
    shown = set(re.findall(r"images/(room-\w+\.webp)", PAGE.read_text("utf-8")))
    kept = {path.name for path in PICTURES.glob("room-*.webp")}
    problems += [f"{name} is empty" for name, size in made.items() if size < LEAST_BYTES]
    if not made.keys() == shown == kept:
        problems.append(f"pictures made, shown and kept differ: {sorted({*made} ^ shown | {*made} ^ kept)}")
    if sum(made.values()) > MOST_BYTES:
        problems.append(f"{sum(made.values()):,} bytes are more than {MOST_BYTES:,}")
    for one in problems:
        print(one, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
