"""Guards files and folders that a caller names as output: which places are protected, and how such a file is
written.

Typing a path grants access to the caller's own files. It never grants files that decide over truth, that git or
a forge executes, or that record what this machine has accepted, whatever the path looks like and whoever asks.

The other base that this clone's vector actions use: a file in `.duckkb/`, so that no clone brings one along."""

import json
import os
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from duckkb import atomic_write
from duckkb.storage import clone_state, layout
from duckkb.storage.layout import read_regular
from duckkb.types.errors import StateError, UsageError
from duckkb.types.settings import Environment

_CONFIG = "config.yaml"
_OF_A_BASE = {layout.DATA, "ontology", _CONFIG}
_ANYWHERE = {".git", "git~1", ".duckkb", ".gitattributes", ".gitmodules", ".gitignore"}
_OF_A_WORK_TREE = {
    ".github", ".gitlab", ".gitlab-ci.yml", ".gitea", ".forgejo", ".circleci", ".woodpecker", ".woodpecker.yml", ".woodpecker.yaml",
    ".drone.yml", ".travis.yml", "azure-pipelines.yml", "bitbucket-pipelines.yml", "jenkinsfile", ".husky",
    ".pre-commit-config.yaml",
}  # fmt: skip
"""Files that run commands where a repository is hosted or committed to: a line of JSON is also YAML."""


def grant_outside_path(path: str | Path, root: Path, env: Environment) -> Path:
    """Return a path that a caller named. Typing it is the grant; a sandbox grants only paths inside the base
    `root`. Raises `errors.UsageError` (E_PATH).
    """
    target = sound(path)
    if env.sandbox and not target.resolve().is_relative_to(root.resolve()):
        raise refusal(path, "is outside the knowledge base, and DUCKKB_SANDBOX is set", "give a path inside the base")
    return target


def sound(path: str | Path) -> Path:
    """Return the path; raise `errors.UsageError` (E_PATH) for a path that no system can have."""
    if "\0" in str(path):
        raise UsageError("a path cannot contain a NUL character", code="E_PATH", suggestion="give another path")
    return Path(path)


def regular(path: str | Path, root: Path, env: Environment, wanted: str) -> Path:
    """Grant a path as `grant_outside_path` does, for a regular file to read; `wanted` names it in the message.
    Raises `errors.UsageError` (E_PATH).
    """
    target = grant_outside_path(path, root, env)
    if not target.is_file():
        problem = "is not a regular file" if target.exists() else "does not exist"
        raise refusal(path, problem, f"give the path of {wanted}")
    return target


def writable(path: str | Path, root: Path, env: Environment) -> Path:
    """Grant a path as `grant_outside_path` does, for writing: also raises what `refuse_protected_path` raises."""
    target = grant_outside_path(path, root, env)
    refuse_protected_path(target, env, root)
    return target


def refuse_protected_path(path: str | Path, env: Environment, root: Path | None = None) -> None:
    """Raise `errors.UsageError` (E_PATH) if a path leads to a protected file: files of git in any repository;
    truth, configuration and state of this base and of any other; files that a forge runs; and what this machine
    accepted.

    Links on the way and at the end count: both the place where a name would be written and the target are checked.
    """
    target = Path(path)
    places = {Path(os.path.realpath(target))}
    if target.name not in ("", ".."):
        places.add(Path(os.path.realpath(target.parent), target.name))
    reason = next((why for place in places for why in _find_reasons(place, env, root)), None)
    if reason is not None:
        raise refusal(path, reason, "give a path outside data/, ontology/, .duckkb/ and .git/")


def write(named: str | Path, pieces: Iterable[bytes], root: Path, env: Environment, *, force: bool) -> int:
    """Write a file that a caller named, through `draft_file`; return the number of pieces."""
    count = 0
    with draft_file(named, root, env, force=force) as file:
        for piece in pieces:
            file.write(piece)
            count += 1
    return count


@contextmanager
def draft_file(named: str | Path, root: Path, env: Environment, *, force: bool) -> Iterator[BinaryIO]:
    """Yield a draft beside the target that a caller named; move it into place at the end of the block. The file is
    there whole or not at all, and hard links of an old file do not see its bytes change. Raises
    `errors.UsageError` (E_PATH), also as `writable` does.
    """
    path = writable(named, root, env)
    if os.path.lexists(path) and not path.is_file():
        raise refusal(path, "is not a regular file", "give the path of a file")
    if not path.parent.is_dir():
        raise UsageError(
            f"{path.parent} is not a folder", code="E_PATH", suggestion="make it first, or give another path"
        )
    if path.exists() and not force:
        raise refusal(path, "exists already", "--force overwrites it")
    draft = atomic_write.draft_beside(path)
    with atomic_write.take_place(draft, path), draft.open("x+b") as file:  # "x" never follows a planted link
        yield file


def refusal(path: str | Path, why: str, remedy: str) -> UsageError:
    """Return the error for a path that cannot be used."""
    return UsageError(f"{path} {why}", code="E_PATH", suggestion=remedy)


def _find_reasons(place: Path, env: Environment, root: Path | None) -> Iterator[str]:
    """Yield why a place is protected, as the end of a sentence; nothing for a place of the caller's own."""
    if any(plain(part) in _ANYWHERE for part in place.parts):
        yield "is a place that only duckkb or git writes"
    for folder in (place, *place.parents):
        if _is_git_folder(folder):
            yield f"is in {folder}, which belongs to git"
        if any(_is_same(folder, home) for home in (env.state_home, env.cache_home)):
            yield f"is in {folder}, which belongs to duckkb"
        first = plain(place.relative_to(folder).parts[0]) if folder != place else ""
        if first in _OF_A_BASE and _is_base(folder, root):
            yield f"is a place that only duckkb writes: {first} of the knowledge base {folder}"
        if first in _OF_A_WORK_TREE and os.path.lexists(folder / ".git"):
            yield f"is a place that a forge or git's hooks take orders from: {first}"


def plain(name: str) -> str:
    """Return a name as file systems compare it that ignore case and invisible characters or cut a name's end."""
    visible_name = "".join(character for character in name if unicodedata.category(character) != "Cf")
    return visible_name.partition(":")[0].rstrip(". ").casefold()


def _is_git_folder(folder: Path) -> bool:
    """Return whether a folder of any name holds a git repository or the state of a linked work tree."""
    keeps = os.path.lexists(folder / "objects") or os.path.lexists(folder / "commondir")
    return keeps and os.path.lexists(folder / "HEAD")


def _is_base(folder: Path, root: Path | None) -> bool:
    if root is not None and _is_same(folder, root):
        return True
    return os.path.lexists(folder / _CONFIG) and os.path.lexists(folder / layout.FORMAT_PATH)


def _is_same(folder: Path, target: Path | None) -> bool:
    try:
        return target is not None and folder.samefile(target)
    except OSError:
        return False


MENDED_BY = "`duckkb vector set-database PATH`, or `.` for this base"


def exists(root: Path) -> bool:
    """Return whether another base is set, without reading the file."""
    return os.path.lexists(clone_state.folder_of(root) / clone_state.VECTORS)


def read_vector_base(root: Path) -> Path:
    """Return the folder that is set, resolved. Raises `errors.StateError` for an empty file, or a file that was
    written for a base in another place.
    """
    try:
        fields = json.loads(read_regular(clone_state.folder_of(root) / clone_state.VECTORS)[0])
        target, place = (root / str(fields["target"])).resolve(), fields["base"]
    except OSError as error:
        raise _build_error(f"cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise _build_error("is damaged") from error
    home = root.resolve()
    if place != str(home) and not target.is_relative_to(home):
        raise _build_error("was written when this base stood in another place")
    return target


def write_vector_base(root: Path, target: Path | None) -> None:
    """Set the folder; None lets the base use itself again. Raises `errors.Unavailable` (E_READ_ONLY, E_IO)."""
    path = clone_state.ensure(root) / clone_state.VECTORS
    if target is None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise clone_state.refusal(f"{path.name} cannot be removed", error) from error
        return
    home = root.resolve()
    # A folder inside the base moves with it; any other folder was set for the base's present place.
    stored_target = target.relative_to(home) if target.is_relative_to(home) else target
    clone_state.write_atomic(path, json.dumps({"base": str(home), "target": str(stored_target)}).encode() + b"\n")


def _build_error(why: str) -> StateError:
    return StateError(
        f"{clone_state.FOLDER}/vectors.json, which names the base of the vector actions, {why}", suggestion=MENDED_BY
    )
