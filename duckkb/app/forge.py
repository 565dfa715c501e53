"""`init --github`: workflows and hooks that check, review and index a base where it is hosted."""

import json
import os
import re
import shlex
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path, PurePosixPath

from duckkb import config
from duckkb.errors import UsageError
from duckkb.truth import history, state
from duckkb.values import dataclass

_WORKFLOWS = ".github/workflows"
_TARGETS = {
    f"{_WORKFLOWS}/duckkb-check.yml": "duckkb-check.yml",
    f"{_WORKFLOWS}/duckkb-review.yml": "duckkb-review.yml",
    f"{_WORKFLOWS}/duckkb-comment.yml": "duckkb-comment.yml",
    f"{_WORKFLOWS}/duckkb-index.yml": "duckkb-index.yml",
    ".pre-commit-config.yaml": "pre-commit-config.yaml",
}


@dataclass(frozen=True, slots=True)
class Hosted:
    """What was written for a forge, relative to `top`, the top of the repository; `kept` are files that were there already
    and say something else: they stay as they are."""

    top: Path
    files: tuple[str, ...]
    kept: tuple[str, ...]


def github(root: Path) -> Hosted:
    """Write the workflows for a base, at the top of its repository. Raises `errors.UsageError` (E_PATH) where that is behind
    a link, or outside of the base in a sandbox."""
    repository = history.find_repository(root)
    top = repository.work_tree if repository else root.resolve()
    if config.environment().sandbox and top != root.resolve():
        raise UsageError(
            f"the workflows belong into {top}, which is outside of the base, and DUCKKB_SANDBOX is set", code="E_PATH"
        )
    place = root.resolve().relative_to(top).as_posix()
    _refuse_links(top)
    written, kept = [], []
    for target, template in _TARGETS.items():
        data = _filled(template, place, _main_branch(root)).encode()
        if not os.path.lexists(top / target):
            (top / target).parent.mkdir(parents=True, exist_ok=True)
            state.write_new(top / target, data)
            written.append(target)
        elif (top / target).is_symlink() or (top / target).read_bytes() != data:
            kept.append(target)
    return Hosted(top, tuple(written), tuple(kept))


def _main_branch(root: Path) -> str:
    """The branch that others start from: as the remote has it, else the one that is checked out."""
    here = history.branch(root)
    return history.default_branch(root) or (here if here != history.head_commit(root) else "") or "main"


def _filled(template: str, place: str, branch: str) -> str:
    """A template with what it must know: the base's place in the repository, the main branch, this version of duckkb."""
    text = (files("duckkb.app") / "templates" / template).read_text("utf-8")
    kb = "" if place == "." else f"--kb {shlex.quote(place)} "
    prefix = "" if place == "." else re.escape(place) + "/"
    values = {
        "KB": json.dumps(place, ensure_ascii=False),
        "CACHE": json.dumps(str(PurePosixPath(place) / ".duckkb/cache"), ensure_ascii=False).strip('"'),
        "BRANCH": json.dumps(branch, ensure_ascii=False),
        "VERSION": version("duckkb"),
        "CHECK": json.dumps(f"duckkb {kb}check --staged", ensure_ascii=False),
        "FMT": json.dumps(f"duckkb {kb}fmt --check", ensure_ascii=False),
        "FILES": json.dumps(rf"^{prefix}(data/.*\.jsonl|ontology/.*\.yaml|config\.yaml)$", ensure_ascii=False),
    }
    return re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], text)


def _refuse_links(top: Path) -> None:
    """A clone may bring links where our files go."""
    for name in (".github", _WORKFLOWS):
        if (top / name).is_symlink():
            raise UsageError(f"{top / name} is a link", code="E_PATH", suggestion="remove it, then do this again")
