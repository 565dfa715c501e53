"""What is done to a folder without loading its records: init, recover, trust, config show."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from duckkb import config
from duckkb.app.wiring import find
from duckkb.engine.boot import refuse_tracked_state
from duckkb.errors import Conflict, UsageError
from duckkb.truth import layout, lock, shadow

_CONFIG = """\
# A duckkb knowledge base. Every setting: `duckkb config show`. Types: `duckkb schema`.
global:
  embedding_model: multilingual-e5-small  # offline, English and Chinese; `none` for words only

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
_ATTRIBUTES = """\
# Parts are text with LF on every system; the cache is binary and never merged line by line.
data/**/*.jsonl text eol=lf
data/FORMAT.json text eol=lf
data/indices/** binary
"""


@dataclass(frozen=True, slots=True)
class Made:
    """A new base: its folder, and the files that were written, relative to it."""

    root: Path
    files: tuple[str, ...]


def init(path: "str | Path" = ".") -> Made:
    """Make a knowledge base in a folder. Raises `errors.Conflict` (E_EXISTS) where there is one, and never overwrites."""
    root = Path(path)
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is not a folder", code="E_PATH", suggestion="duckkb init FOLDER")
    if (root / "config.yaml").exists():
        raise Conflict(f"{root / 'config.yaml'} exists already", code="E_EXISTS", suggestion="duckkb status")
    files = {
        "config.yaml": _CONFIG.encode(),
        ".gitattributes": _attributes(root),
        layout.FORMAT_PATH: layout.format_bytes(),
    }
    written = []
    for name, data in files.items():
        target = root / name
        if name == layout.FORMAT_PATH and target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        written.append(name)
    return Made(root.resolve(), tuple(written))


def _attributes(root: Path) -> bytes:
    """The lines we need, behind what a .gitattributes already holds."""
    target = root / ".gitattributes"
    present = target.read_text("utf-8") if target.exists() else ""
    if _ATTRIBUTES in present:
        return present.encode()
    gap = "" if not present or present.endswith("\n") else "\n"
    return (present + gap + _ATTRIBUTES).encode()


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
        return shadow.show(root)
    with lock.exclusive(root, lock_timeout):
        run = {None: shadow.recover, "forward": shadow.forward, "abort": shadow.abort}[action]
        recovery = run(root)
    return {"action": recovery.action, "files": list(recovery.files)}


def trust(path: "str | Path | None" = None, *, accept: bool = True) -> dict[str, Any]:
    """What the configuration demands, its hash, and whether this machine accepts it; with `accept`, it does from now."""
    root, env = find(path), config.environment()
    settings = config.load(root, env).settings
    demands = config.demands(settings)
    if accept and demands:
        config.accept(root, settings, env)
    return {
        "demands": demands,
        "hash": config.trust_hash(demands),
        "trusted": config.is_trusted(root, settings, env),
    }


def config_show(path: "str | Path | None" = None) -> dict[str, Any]:
    """The whole configuration, normalised, each value with its origin."""
    root, env = find(path), config.environment()
    return config.normalised(config.load(root, env))
