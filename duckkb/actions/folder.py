"""What is done to a folder without loading its records: init, recover, trust, config show. And how it is opened."""

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
from duckkb.errors import Conflict, Refused, StateError, UsageError
from duckkb.ports import ChatModel, Clock, Embedder, Expander, Reranker
from duckkb.settings import EmbeddingSettings
from duckkb.truth import layout
from duckkb.truth.commit import lock, outside, protocol
from duckkb.truth.git import begun_merge

if TYPE_CHECKING:
    from duckkb.actions.diffing import Matching

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
    """What a caller chose at `open`, kept so that a changed configuration can be loaded again in the same way.
    `cache_home` stands for the user's folder of converted models; `at` names the revision to read, by the configuration it
    has or the files `instead`, `proposal` where what is written to that goes; `first_filter` is the filter or statement that
    will be asked first; `embedding` stands for the configured model. `command`: the process
    is one command, which has no threads, so that children of it may do a part of the work, and whose first call may answer from
    the files as they lay when the base was opened. `agent`: an agent writes, as DUCKKB_AGENT says otherwise. `is_served`: the
    process answers for long, and starts at once what it will need. `single_core`: the
    process is one of several that answer, so that none takes more than one core for one answer. `chat` stands for every configured chat model. `backend` is the address of a target, which is
    asked instead of files."""

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
    """A base that need not load, for what is done around one: its folder, how its parts are wired, and what evaluates a
    filter over records that are read, where one is asked."""

    root: Path
    wire: Callable[[Path, OpenOptions], tuple[config.Loaded, Wiring]]
    matching: "Matching | None" = None

    @classmethod
    def around(cls, base: Base) -> "Unopened":
        """That of a base that is open. Raises `errors.Refused` (E_FORBIDDEN) for who sees a part of it."""
        return cls(base.root, base.wiring.wire)

    @contextlib.contextmanager
    def opened(self, opening: OpenOptions) -> Iterator[Base]:
        """The base, closed afterwards. Raises as `app.open`."""
        base = boot(self.wire(self.root, opening)[1])
        try:
            yield base
        finally:
            base.close()


def find(path: "str | Path | None", backend: str | None = None) -> Path:
    """The folder of the base that a caller means. Where a `backend` is asked, and no folder is named, there need be none: one of
    this user's own stands for it. Raises `errors.StateError` (E_NO_KB)."""
    try:
        return config.find_root(Path.cwd(), str(path) if path is not None else None, config.environment())
    except StateError:
        if backend is None or path is not None:
            raise
    return config.stand_in(backend)


class FilesMade(Struct, frozen=True):
    """A new base: its folder, and the files that were written, relative to it or, for a forge, to the top of its repository;
    `kept` are files of these that were there already, with other content; `notes` what is left to do."""

    root: Path
    files: tuple[str, ...]
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def init(path: "str | Path" = ".", *, github: bool = False, install: str | None = None, lfs: bool = False) -> FilesMade:
    """Make a knowledge base in a folder. Raises `errors.Conflict` (E_EXISTS) where there is one, and never overwrites or
    writes through a link; `errors.UsageError` (E_PATH) where that could not be, or where a sandbox forbids the folder. With
    `github` also workflows and hooks, which a base that exists can get too; `install` as for `forge.github`.
    With `lfs` git keeps the team's cache in Git LFS, also that of a base that exists.

    What was interrupted is no base yet: config.yaml comes last, and the next init begins anew.
    """
    root = Path(path)
    if "\0" in str(path):
        raise UsageError("a path cannot hold a NUL character", code="E_PATH", suggestion="duckkb init FOLDER")
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is not a folder", code="E_PATH", suggestion="duckkb init FOLDER")
    outside.refuse_protected_path(path, config.environment())
    _refuse_outside(root)
    if install is not None and not github:
        raise UsageError("--install says what workflows install: give --github with it")
    if install not in (None, "."):
        from duckkb.actions.forge import refuse_address

        refuse_address(install)
    base_files = (
        _with_lfs(root, lfs=lfs) if (github or lfs) and (root / "config.yaml").is_file() else make(root, lfs=lfs)
    )
    notes: tuple[str, ...] = (_LFS_NEXT,) if lfs else ()
    if not github:
        return replace(base_files, notes=notes)
    from duckkb.actions import forge

    forge_files = forge.github(root, install, _list_embedding_keys(root))
    return FilesMade(
        base_files.root, (*base_files.files, *forge_files.files), forge_files.kept, (*notes, *forge_files.notes)
    )


def find_outer_base(root: Path) -> Path | None:
    """The base that another one lies in; None where it lies in none."""
    return next((folder for folder in root.resolve().parents if (folder / "config.yaml").is_file()), None)


def _list_embedding_keys(root: Path) -> tuple[str, ...]:
    """List the variables of the keys with which texts of a base are embedded; none where its configuration does not load."""
    with contextlib.suppress(UsageError):
        configuration = config.load(root, config.environment())
        demands = config.demands(configuration.settings, configuration.ontology)
        return tuple(sorted({name for at, name in demands.items() if at.endswith("embedding.api_key_env")}))
    return ()


def make(root: Path, *, lfs: bool = False) -> FilesMade:
    """As `init`, in a folder that the caller may write to."""
    _refuse_base(root)
    _refuse_links(root)
    root.mkdir(parents=True, exist_ok=True)
    with lock.exclusive(root, _LOCK_S):
        _refuse_base(root)  # another process may have made it meanwhile
        return _make_files(root, lfs=lfs)


def _refuse_base(root: Path) -> None:
    if os.path.lexists(root / "config.yaml"):
        raise Conflict(f"{root / 'config.yaml'} exists already", code="E_EXISTS", suggestion="duckkb status")


def _make_files(root: Path, *, lfs: bool) -> FilesMade:
    """The files of a base, for who is alone; config.yaml comes last."""
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
    """Write a file so that it is there whole or not at all. The draft's name is fixed: the next try takes its place."""
    draft = target.with_name(f".{target.name.removeprefix('.')}.new")
    mode = target.stat().st_mode & 0o777 if target.exists() else None
    draft.unlink(missing_ok=True)
    with atomic_write.take_place(draft, target):
        atomic_write.write_new(draft, data, mode=mode)
    with contextlib.suppress(OSError):  # it is there; should a power cut take its name, init makes it again
        atomic_write.fsync_folder(target.parent)


def _refuse_links(root: Path) -> None:
    """A folder that came from elsewhere may hold links where our files go: what they point to is not ours to change."""
    for name in (".gitattributes", layout.DATA, layout.FORMAT_PATH):
        if (root / name).is_symlink():
            raise UsageError(
                f"{root / name} is a link", code="E_PATH", suggestion="remove it, then `duckkb init` again"
            )


def _refuse_outside(root: Path) -> None:
    """In a sandbox a base may be made inside the present one only."""
    env = config.environment()
    if env.sandbox and not root.resolve().is_relative_to(config.find_root(Path.cwd(), None, env).resolve()):
        raise UsageError(
            f"{root} lies outside the knowledge base, and DUCKKB_SANDBOX is set",
            code="E_PATH",
            suggestion="give a path inside the base",
        )


def _with_lfs(root: Path, *, lfs: bool) -> FilesMade:
    """A base that exists, with what Git LFS needs to be told."""
    data = _merge_attributes(root, lfs=lfs)
    target = root / ".gitattributes"
    if not lfs or (target.exists() and target.read_bytes() == data):
        return FilesMade(root.resolve(), ())
    _refuse_links(root)
    with lock.exclusive(root, _LOCK_S):
        _put_whole(target, _merge_attributes(root, lfs=lfs))
    return FilesMade(root.resolve(), (target.name,))


def _merge_attributes(root: Path, *, lfs: bool) -> bytes:
    """The lines we need, behind what a .gitattributes already holds."""
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
    """Finish an interrupted write (None), show it, finish it over files in a third state, or undo it."""
    root = find(path)
    refuse_tracked_state(root)
    if action == "show":
        open_merge = begun_merge.read_begun_merge(root)
        return protocol.show(root) | ({"merge": open_merge.theirs} if open_merge else {})
    with lock.exclusive(root, lock_timeout):
        run = {None: protocol.recover, "forward": protocol.forward, "abort": protocol.abort}[action]
        recovery = run(root)
        undone = begun_merge.undo(root)
    if undone:
        return {"action": "aborted merge", "files": [*recovery.files, *undone]}
    return {"action": recovery.action, "files": list(recovery.files)}


def trust(path: "str | Path | None" = None, *, accept: bool = True, model: str | None = None) -> dict[str, Any]:
    """What the configuration demands (hosts, key variables, commands), its `hash` as DUCKKB_TRUST takes it (of commands one of
    their own behind a comma), and whether this machine accepts all of it; with `accept`, it does from now. Of a `model` (as `config.other_model` takes it) what the configuration
    would demand with it, which is accepted beside what is accepted already."""
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
    """The whole configuration, normalised, each value with its origin."""
    from duckkb.config.show import normalize_config

    return normalize_config(config.load(find(path), config.environment()))
