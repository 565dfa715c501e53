"""Actions on a folder without loading its records (init, recover, trust, config show), and options of opening it."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb import atomic_write, config
from duckkb.engine.base import Base, Progress, Proposal, Wiring
from duckkb.engine.boot import boot, refuse_tracked_state
from duckkb.ports import ChatModel, Clock, Embedder, Expander, Reranker
from duckkb.storage import base_lock, commit_protocol, git_changes, layout, path_guard
from duckkb.types.errors import Conflict, Refused, StateError, UsageError
from duckkb.types.settings import EmbeddingSettings

if TYPE_CHECKING:
    from duckkb.operations.version_diff import Matching

_LOCK_S = 60.0
_LFS_NEXT = (
    "git keeps data/indices/ in Git LFS from now on: `git lfs install`, then `git add --renormalize data/indices`"
)
_CONFIG = """\
# A duckkb knowledge base. Every setting: `duckkb config show`. Types: `duckkb schema`.
global:
  embedding_model: multilingual-e5-small  # offline, English and Chinese; `none` for words only
  fold_chinese: simplified  # words: traditional and simplified characters find each other; `none` keeps them apart
  word_forms: all  # words: `cafe` finds café, `user` finds getUserName; `written` finds a word as it is written
  fusion: {method: minmax, weight: 0.5, gate: 0.2}  # words and meaning by their scores; words that hardly fit do not count

nodes:
  Note:
    table: note
    identity: id
    schema:
      type: object
      properties:
        id: {type: string}
        title: {type: string}
        text: {type: string}
        tags: {type: array, items: {type: string}, x-merge: set}
      required: [id]
    search:
      full_text: [title, text]
      vectors: [text]

edges:
  links:
    from: Note
    to: Note
    schema:
      type: object
      properties:
        why: {type: string}
"""


class OpenOptions(Struct, frozen=True):
    """The options of `open`, kept so that a changed configuration can be loaded in the same way.

    Attributes:
        cache_home: Overrides the user's cache folder.
        at: The revision to read, with its own configuration or the files `instead`.
        proposal: Receives what is written to the revision.
        first_filter: The filter or statement that is asked first.
        embedding, chat: Override the configured models.
        command: The process runs a single command without threads. Children may do part of the work, and its first
            call may answer from the files as they were at opening.
        agent: An agent writes, whatever DUCKKB_AGENT says.
        is_served: The process answers for long, and starts early what it will need.
        single_core: The process is one of several, and uses one core for an answer.
        backend: The address of a target that answers instead of files.
    """

    lenient: bool = False
    lock_timeout: float = 60.0
    progress: Progress | None = None
    embedder: Embedder | None = None
    clock: Clock | None = None
    cache_home: Path | None = None
    sql_in_process: bool = False
    first_filter: str | None = None
    at: str | None = None
    instead: Mapping[str, bytes | None] | None = None
    proposal: Proposal | None = None
    command: bool = False
    embedding: EmbeddingSettings | None = None
    reranker: Reranker | None = None
    expander: Expander | None = None
    agent: bool = False
    is_served: bool = False
    single_core: bool = False
    chat: ChatModel | None = None
    backend: str | None = None


class Unopened(Struct, frozen=True):
    """A base that need not load: its folder, the wiring of its parts, and what evaluates filters over records."""

    root: Path
    wire: Callable[[Path, OpenOptions], tuple[config.Loaded, Wiring]]
    matching: "Matching | None" = None

    @classmethod
    def from_base(cls, base: Base) -> "Unopened":
        """Return the `Unopened` of an open base. Raises `errors.Refused` (E_FORBIDDEN) for callers who see a part."""
        return cls(base.root, base.wiring.wire)

    @contextlib.contextmanager
    def open_base(self, opening: OpenOptions) -> Iterator[Base]:
        """Open the base, and close it at the end of the block. Raises as `app.open`."""
        base = boot(self.wire(self.root, opening)[1])
        try:
            yield base
        finally:
            base.close()


def find(path: "str | Path | None", backend: str | None = None) -> Path:
    """Return the folder of the base that a caller means. Raises `errors.StateError` (E_NO_KB).

    With a `backend` and no named folder, a folder of this user's may stand in for it.
    """
    try:
        return config.find_root(Path.cwd(), str(path) if path is not None else None, config.environment())
    except StateError:
        if backend is None or path is not None:
            raise
    return config.stand_in(backend)


class FilesMade(Struct, frozen=True):
    """A new base: its folder, and the files written, relative to it or, for a forge, to the top of its repository.

    `kept` are existing files of these with other content; `notes` is what is left to do.
    """

    root: Path
    files: tuple[str, ...]
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def init(path: "str | Path" = ".", *, github: bool = False, install: str | None = None, lfs: bool = False) -> FilesMade:
    """Make a knowledge base in a folder, or add `github` or `lfs` files to an existing one.

    With `github` also writes workflows and hooks; `install` is as for `forge.github`. With `lfs`, git keeps the
    team's cache in Git LFS. Never overwrites, and never writes through a link. config.yaml is written last, so
    an interrupted `init` leaves no base, and the next one starts anew.

    Raises `errors.Conflict` (E_EXISTS) where there is a base, `errors.UsageError` (E_PATH) for an unusable
    folder, or one that a sandbox forbids.
    """
    root = Path(path)
    if "\0" in str(path):
        raise UsageError("a path cannot contain a NUL character", code="E_PATH", suggestion="duckkb init FOLDER")
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is not a folder", code="E_PATH", suggestion="duckkb init FOLDER")
    path_guard.refuse_protected_path(path, config.environment())
    _refuse_outside(root)
    if install is not None and not github:
        raise UsageError("--install sets the package that workflows install: add --github")
    if install not in (None, "."):
        from duckkb.operations.github_setup import refuse_address

        refuse_address(install)
    base_files = (
        _with_lfs(root, lfs=lfs) if (github or lfs) and (root / "config.yaml").is_file() else make(root, lfs=lfs)
    )
    notes: tuple[str, ...] = (_LFS_NEXT,) if lfs else ()
    if not github:
        return replace(base_files, notes=notes)
    from duckkb.operations import github_setup

    forge_files = github_setup.github(root, install, _list_embedding_keys(root))
    return FilesMade(
        base_files.root, (*base_files.files, *forge_files.files), forge_files.kept, (*notes, *forge_files.notes)
    )


def find_outer_base(root: Path) -> Path | None:
    """Return the base around another base; None without one."""
    return next((folder for folder in root.resolve().parents if (folder / "config.yaml").is_file()), None)


def _list_embedding_keys(root: Path) -> tuple[str, ...]:
    """List the key variables of the models that embed a base's texts; empty where its configuration does not load."""
    with contextlib.suppress(UsageError):
        configuration = config.load(root, config.environment())
        demands = config.demands(configuration.settings, configuration.ontology)
        return tuple(sorted({name for at, name in demands.items() if at.endswith("embedding.api_key_env")}))
    return ()


def make(root: Path, *, lfs: bool = False) -> FilesMade:
    """Make a base as `init` does, in a folder that the caller may write to."""
    _refuse_base(root)
    _refuse_links(root)
    root.mkdir(parents=True, exist_ok=True)
    with base_lock.exclusive(root, _LOCK_S):
        _refuse_base(root)  # another process may have made it meanwhile
        return _make_files(root, lfs=lfs)


def _refuse_base(root: Path) -> None:
    if os.path.lexists(root / "config.yaml"):
        raise Conflict(f"{root / 'config.yaml'} already exists", code="E_EXISTS", suggestion="duckkb status")


def _make_files(root: Path, *, lfs: bool) -> FilesMade:
    """Write the files of a base, config.yaml last; the caller holds the lock."""
    files = {
        "config.yaml": _CONFIG.encode(),
        ".gitattributes": _merge_attributes(root, lfs=lfs),
        layout.FORMAT_PATH: layout.format_bytes(),
    }
    names = []
    for name, data in reversed(files.items()):
        target = root / name
        if name == layout.FORMAT_PATH and target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        _put_whole(target, data)
        names.append(name)
    return FilesMade(root.resolve(), tuple(reversed(names)))


def _put_whole(target: Path, data: bytes) -> None:
    """Write a file atomically. The draft's name is fixed, so that the next try replaces it."""
    draft = target.with_name(f".{target.name.removeprefix('.')}.new")
    mode = target.stat().st_mode & 0o777 if target.exists() else None
    draft.unlink(missing_ok=True)
    with atomic_write.take_place(draft, target):
        atomic_write.write_new(draft, data, mode=mode)
    with contextlib.suppress(OSError):  # it exists; if a power cut loses its name, init makes it again
        atomic_write.fsync_folder(target.parent)


def _refuse_links(root: Path) -> None:
    """Refuse links where files would be written.

    A folder from elsewhere may bring links, and their targets must not change.
    """
    for name in (".gitattributes", layout.DATA, layout.FORMAT_PATH):
        if (root / name).is_symlink():
            raise UsageError(
                f"{root / name} is a link", code="E_PATH", suggestion="remove it, then `duckkb init` again"
            )


def _refuse_outside(root: Path) -> None:
    """Refuse a base outside the present one in a sandbox."""
    env = config.environment()
    if env.sandbox and not root.resolve().is_relative_to(config.find_root(Path.cwd(), None, env).resolve()):
        raise UsageError(
            f"{root} is outside the knowledge base, and DUCKKB_SANDBOX is set",
            code="E_PATH",
            suggestion="give a path inside the base",
        )


def _with_lfs(root: Path, *, lfs: bool) -> FilesMade:
    """Add the files that Git LFS needs to an existing base."""
    data = _merge_attributes(root, lfs=lfs)
    target = root / ".gitattributes"
    if not lfs or (target.exists() and target.read_bytes() == data):
        return FilesMade(root.resolve(), ())
    _refuse_links(root)
    with base_lock.exclusive(root, _LOCK_S):
        _put_whole(target, _merge_attributes(root, lfs=lfs))
    return FilesMade(root.resolve(), (target.name,))


def _merge_attributes(root: Path, *, lfs: bool) -> bytes:
    """Return a .gitattributes with the required lines behind its present ones."""
    target = root / ".gitattributes"
    text = target.read_text("utf-8") if target.exists() else ""
    needed_lines = [layout.ATTRIBUTES, *([f"{layout.LFS_ATTRIBUTE}\n"] if lfs else [])]
    for lines in needed_lines:
        if lines not in text:
            text += ("" if not text or text.endswith("\n") else "\n") + lines
    return text.encode()


def recover(
    path: "str | Path | None" = None,
    *,
    action: Literal["show", "forward", "abort"] | None = None,
    lock_timeout: float = 60.0,
) -> dict[str, Any]:
    """Finish an interrupted write (None), show it, finish it over files that changed since, or undo it."""
    root = find(path)
    refuse_tracked_state(root)
    if action == "show":
        open_merge = git_changes.read_begun_merge(root)
        return commit_protocol.show(root) | ({"merge": open_merge.theirs} if open_merge else {})
    with base_lock.exclusive(root, lock_timeout):
        run = {None: commit_protocol.recover, "forward": commit_protocol.forward, "abort": commit_protocol.abort}[
            action
        ]
        recovery = run(root)
        undone = git_changes.undo(root)
    if undone:
        return {"action": "aborted merge", "files": [*recovery.files, *undone]}
    return {"action": recovery.action, "files": list(recovery.files)}


def trust(path: "str | Path | None" = None, *, accept: bool = True, model: str | None = None) -> dict[str, Any]:
    """Return what the configuration demands, and whether this machine accepts it; with `accept`, accept it now.

    The demands are hosts, key variables and commands. `hash` is as DUCKKB_TRUST takes it, with one for commands
    behind a comma. For a `model` (as `config.config_files` takes it), returns the demands with that model, which
    are accepted beside those already accepted.
    """
    root = find(path)
    env = config.read_environment(root)
    configuration = config.load(root, env)
    settings = configuration.settings if model is None else config.other_model(configuration, model).settings
    commands = config.commands(settings, configuration.ontology) if model is None else {}
    demands = config.demands(settings, configuration.ontology)
    if accept and env.sandbox:
        raise Refused(
            "DUCKKB_SANDBOX is set: what runs in a sandbox cannot accept hosts and keys for this machine",
            suggestion="`duckkb trust --show`, and a person's `duckkb trust` outside of it",
        )
    if accept and demands:
        config.accept(root, settings, env, configuration.ontology, beside=model is not None)
    if accept and commands:
        config.accept_commands(root, commands, env)
    return {
        "demands": {**demands, **commands},
        "hash": ",".join(
            config.trust_hash(part) for part in (demands, commands) if part or (part is demands and not commands)
        ),
        "trusted": config.is_trusted(root, settings, env, configuration.ontology)
        and config.are_commands_trusted(root, commands, env),
    }


def config_show(path: "str | Path | None" = None) -> dict[str, Any]:
    """Return the whole configuration in normal form, each value with its origin."""
    from duckkb.config.config_files import normalize_config

    return normalize_config(config.load(find(path), config.environment()))
