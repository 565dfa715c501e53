"""Installs git's merge driver and textconv program in this clone's settings, and the attributes that name them.

Each command line falls back to git's own merge, or to `cat`, where duckkb cannot be run.
"""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from duckkb.storage import base_lock, clone_state, git_changes, merge_rules, repository
from duckkb.storage.merge_rules import RulesByTable

ATTRIBUTE = "data/**/*.jsonl merge=duckkb diff=duckkb"
_LOCK_S = 60.0
_SAMPLE = "data/nodes/a/20260101/part_000.jsonl"
_NAME, _DRIVER, _RECURSIVE, _BASES, _TEXTCONV = (
    "merge.duckkb.name",
    "merge.duckkb.driver",
    "merge.duckkb.recursive",
    "merge.duckkb-base.driver",
    "diff.duckkb.textconv",
)


class Fact(Struct, frozen=True):
    """A condition for git to merge by records here, whether it holds, and what repairs it."""

    check: str
    is_ok: bool
    message: str
    remedy: str = ""


def settings(python: str = sys.executable) -> dict[str, str]:
    """Return the settings of git by name.

    `python` is the interpreter's absolute path; `-I` keeps it from importing modules of the work tree, which
    holds what others committed.
    """
    start = f"{shlex.quote(python)} -I -m duckkb.cli.git_driver"
    by_lines = "git merge-file --diff3 --marker-size=%L -L ours -L base -L theirs %A %O %B"
    merge_command = f"{start.replace('%', '%%')} merge %O %A %B %L %P"
    base = f"{start.replace('%', '%%')} merge-base %O %A %B %P"
    return {
        _NAME: "records merged by key (duckkb)",
        # 40 and 41 are the driver's own exit codes; after any other, it has written nothing.
        _DRIVER: f"{merge_command}; case $? in 40) exit 0;; 41) exit 1;; esac; {by_lines}",
        # Several bases are merged without markers: their conflicts, or everything, stay as before them.
        _RECURSIVE: "duckkb-base",
        _BASES: f"{base}; [ $? -eq 40 ] || cat %O > %A",
        _TEXTCONV: f'shown() {{ {start} textconv "$1" 2>/dev/null || cat "$1"; }}; shown',
    }


def install(root: Path, rules: RulesByTable) -> list[str]:
    """Write settings, attributes and the rules of merges; return what was changed.

    Raises `errors.Unavailable` (E_GIT, E_LOCKED).
    """
    with base_lock.exclusive(root, _LOCK_S):
        changed_names = _set(root, settings())
        attributes = root / ".gitattributes"
        lines = _read_lines(attributes)
        if ATTRIBUTE not in lines:
            _put(attributes, [*lines, ATTRIBUTE])
            changed_names.append(".gitattributes")
        if merge_rules.load(root) != rules:
            merge_rules.remember(root, rules)
            changed_names.append(merge_rules.FILE)
        return changed_names


def uninstall(root: Path) -> list[str]:
    """Remove what `install` wrote; return what was changed. Raises as `install` does."""
    with base_lock.exclusive(root, _LOCK_S):
        changed_names = _set(root, dict.fromkeys(settings()))
        attributes = root / ".gitattributes"
        lines = _read_lines(attributes)
        if ATTRIBUTE in lines:
            _put(attributes, [line for line in lines if line != ATTRIBUTE])
            changed_names.append(".gitattributes")
        return changed_names


def _set(root: Path, target_settings: Mapping[str, str | None]) -> list[str]:
    """Set git's settings; return the names of those that changed."""
    current_settings = git_changes.settings(root, target_settings)
    changed_names = [name for name, value in target_settings.items() if current_settings[name] != value]
    for name in changed_names:
        git_changes.set_setting(root, name, target_settings[name])
    return changed_names


def check(root: Path, rules: RulesByTable) -> list[Fact]:
    """Check that everything is installed, correct and runs. Changes nothing."""
    current_settings, target_settings = git_changes.settings(root, settings()), settings()
    attributes = repository.attributes(root, _SAMPLE, ("merge", "diff")) or {}
    textconv = "git shows parts as lines" if current_settings[_TEXTCONV] is None else "that of another installation"
    problems = {
        ("driver", "git merges parts by records"): _check_driver(current_settings, target_settings),
        ("textconv", "git diff shows parts field by field"): textconv
        if current_settings[_TEXTCONV] != target_settings[_TEXTCONV]
        else "",
        ("attributes", "parts are merged and shown by duckkb"): ""
        if attributes.get("merge") == attributes.get("diff") == "duckkb"
        else f".gitattributes lacks `{ATTRIBUTE}`",
        ("rules", "identity fields and merge rules are known"): ""
        if merge_rules.load(root) == rules
        else f"{merge_rules.FILE} does not match the ontology",
    }
    return [
        Fact(name, not problem, problem or fine, "duckkb git install" if problem else "")
        for (name, fine), problem in problems.items()
    ]


def _check_driver(current_settings: Mapping[str, str | None], target_settings: Mapping[str, str]) -> str:
    driver = current_settings[_DRIVER]
    if driver is None:
        return "git merges parts by lines here"
    if driver != target_settings[_DRIVER]:
        path = shlex.split(driver.replace("%%", "%"))[0] if driver else ""
        is_missing = not (Path(path).is_absolute() and os.access(path, os.X_OK))
        return f"{path} is gone" if is_missing else "the driver is that of another installation"
    if any(current_settings[name] != target_settings[name] for name in (_RECURSIVE, _BASES)):
        return "several merge bases are not merged by records among themselves"
    return ""


def _read_lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines() if path.is_file() and not path.is_symlink() else []


def _put(path: Path, lines: Sequence[str]) -> None:
    if not lines:
        path.unlink()
        return
    clone_state.write_atomic(path, "".join(f"{line}\n" for line in lines).encode())
