"""Loading of config.yaml and ontology/**/*.yaml into Settings and Ontology, or all problems at once.

Finds the base and its files (regular ones; links are not followed), reads them, and searches them for keys and
passwords.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb.config.environment import environment
from duckkb.config.keys import SECTIONS, read_settings
from duckkb.config.remembered import OUTSIDE, outside_definitions, outside_files, recall_schemas
from duckkb.errors import Finding, OntologyError, StateError, UsageError
from duckkb.ontology.load import load as load_ontology
from duckkb.ontology.load import questions as read_questions
from duckkb.ontology.load import sort_findings
from duckkb.ontology.model import Ontology
from duckkb.ontology.rules import looks_secret
from duckkb.ontology.source import MAX_BYTES, MAX_FINDINGS, Document, pointer, read_yaml, root_section
from duckkb.open_files import open_without_blocking
from duckkb.settings import Environment, Settings


class Loaded(Struct, frozen=True):
    """A base's configuration. `documents` are its files, config.yaml first; `env` is the environment of the load."""

    root: Path
    settings: Settings
    ontology: Ontology
    questions: tuple[Mapping[str, Any], ...]
    documents: tuple[Document, ...]
    env: Environment


def load(root: Path, env: Environment, instead: Mapping[str, bytes | None] | None = None) -> Loaded:
    """Read a base's configuration.

    `instead` has bytes that replace files of ontology/ (or `outside_files`); None stands for a removed file.
    Raises `errors.OntologyError` with all findings of settings and types together, and `errors.StateError`
    (E_NO_KB) without a config.yaml.
    """
    recall_schemas(env)
    documents = read_documents(root, {**outside_files(outside_definitions(root, env)), **(instead or {})})
    first, ontology_documents = documents[0], documents[1:]
    setting_findings: list[Finding] = []
    settings = read_settings(root_section(first, "E_CONFIG", setting_findings), env.settings)
    parts = (first.only(SECTIONS), *ontology_documents)
    ontology, wrong = load_ontology(parts)
    questions, doubtful = read_questions(parts, ontology)
    secrets = [finding for document in documents for finding in secret_findings(document)]
    findings = sort_findings(drop_secret_findings([*setting_findings, *wrong, *doubtful], secrets), documents)
    if findings:
        raise _make_refusal(findings)
    return Loaded(root, settings, ontology, questions, documents, env)


def _make_refusal(findings: Sequence[Finding]) -> OntologyError:
    codes = {finding.code for finding in findings}
    files = list(dict.fromkeys(finding.path or "the environment" for finding in findings))
    file_names = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    problems = "1 problem" if len(findings) == 1 else f"{len(findings)} problems"
    if len(findings) > MAX_FINDINGS:
        problems = f"more than {MAX_FINDINGS} problems"
    return OntologyError(
        f"{problems} in {file_names}; nothing was loaded or created",
        code=codes.pop() if len(codes) == 1 else "E_ONTOLOGY",
        suggestion="edit the lines named; config.example.yaml lists every setting"
        if any(finding.path for finding in findings)
        else findings[0].remedy,
        findings=tuple(findings[:MAX_FINDINGS]),
    )


CONFIG, FOLDER = "config.yaml", "ontology"
_SUFFIX = ".yaml"


def find_root(start: Path, explicit: str | None, env: Environment) -> Path:
    """Return the base's folder: `explicit` (`--kb`), else DUCKKB_KB, else the nearest base at or above `start`.

    In a sandbox `--kb` may only name DUCKKB_KB or a base inside it. Raises `errors.StateError` (E_NO_KB),
    `errors.UsageError` (E_PATH).
    """
    for folder_name, by in ((explicit, "--kb"), (env.kb, "DUCKKB_KB")):
        if folder_name == "":
            raise StateError(f"{by} is empty", "E_NO_KB", "name a folder, or `duckkb init` one")
        if folder_name is not None:
            root = _resolve_folder(start, folder_name)
            if root is not None and _has_config(root):
                if by == "--kb" and env.sandbox and env.kb is not None:
                    _refuse_outside(root, _resolve_folder(start, env.kb))
                return root
            raise StateError(
                f"{folder_name} ({by}) is not a knowledge base: it has no {CONFIG}",
                "E_NO_KB",
                f"duckkb init {folder_name}",
            )
    folder = start.resolve()
    for candidate in (folder, *folder.parents):
        if _has_config(candidate):
            return candidate
    raise StateError(
        f"no knowledge base: no {CONFIG} in {folder} or above it",
        "E_NO_KB",
        "`duckkb init`, or name one with `--kb PATH`",
    )


def read_documents(root: Path, instead: Mapping[str, bytes | None]) -> tuple[Document, ...]:
    """Return config.yaml, then the files of ontology/ by name, some replaced by `instead` (None: removed).

    An unreadable file is a document with a finding.
    """
    if not _has_config(root):
        raise StateError(f"{root} has no {CONFIG}", "E_NO_KB", f"duckkb init {root}")
    paths = [CONFIG, *_iter_ontology_paths(root)]
    paths += sorted(path for path in instead if path not in paths)
    documents = []
    for path in paths:
        data = instead.get(path)
        if data is not None:
            documents.append(read_yaml(data, path))
        elif path not in instead:
            documents.append(_read(root, path))
    return tuple(documents)


def config_paths(root: Path) -> tuple[str, ...]:
    """Return the files of a base's configuration, relative to it: config.yaml, then those of ontology/ by name."""
    return (CONFIG, *_iter_ontology_paths(root))


def _refuse_outside(root: Path, base_root: Path | None) -> None:
    if base_root is None or not root.is_relative_to(base_root):
        raise UsageError(
            f"{root} is outside the knowledge base of DUCKKB_KB, and DUCKKB_SANDBOX is set",
            code="E_PATH",
            suggestion="leave out --kb",
        )


def _resolve_folder(start: Path, name: str) -> Path | None:
    try:
        return (start / Path(name).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):
        # An unknown user, a loop of links, or a NUL.
        return None


def _has_config(folder: Path) -> bool:
    """Return whether config.yaml exists in any form; a link or a device is refused later, by name."""
    try:
        (folder / CONFIG).lstat()
    except (OSError, ValueError):
        return False
    return True


def _iter_ontology_paths(root: Path) -> Iterator[str]:
    """Yield paths relative to the base, in the order of their names, without hidden files, which editors make."""
    try:
        kind = (root / FOLDER).lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(kind):
        yield from _walk(root, FOLDER)
    else:
        yield FOLDER


def _walk(root: Path, folder: str) -> Iterator[str]:
    try:
        with os.scandir(root / folder) as entries:
            children = sorted(
                (entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries
            )
    except OSError:
        # Reading it as a file reports the problem.
        yield folder
        return
    for name, is_folder, is_link in children:
        path = f"{folder}/{name}"
        if name.startswith("."):
            continue
        if is_folder:
            yield from _walk(root, path)
        elif is_link or name.lower().endswith((_SUFFIX, ".yml")):
            yield path


def _read(root: Path, path: str) -> Document:
    try:
        with open_without_blocking(root / path) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return _unread(path, "is not a regular file", "replace it by one, or remove it")
            if not path.endswith(_SUFFIX):
                return _unread(path, f"would not be read: files of the ontology end in {_SUFFIX}", "rename it")
            data = file.read(MAX_BYTES + 1)
        if not data.strip() and _has_lost_content(root, path):
            return _unread(path, "was cut off: nothing is in it, and HEAD has it whole", f"git checkout HEAD -- {path}")
        return read_yaml(data, path)
    except OSError as error:
        if (root / path).is_symlink():
            return _unread(path, "is a link, and links are not followed", "replace it with its target")
        return _unread(path, f"cannot be read: {error.strerror}", "correct its permissions")


def _has_lost_content(root: Path, path: str) -> bool:
    from duckkb.truth.git import absent  # it runs git

    return absent.is_held_at_head(root, path)


def _unread(path: str, message: str, remedy: str) -> Document:
    finding = Finding("E_YAML", message, path, remedy=remedy)
    return Document(path, findings=(finding,), broken=True)


Stamp = tuple[tuple[str, int, int, int, int], ...]


def stamp(root: Path) -> Stamp:
    """Return a stamp of the configuration; a stamp that differs calls for a new load.

    It has path, size, mtime and ctime in ns and inode of config.yaml and of each file of ontology/, and what
    this machine remembers of folders outside bases.
    """
    facts = []
    places = [(path, root / path) for path in config_paths(root)]
    for path, place in (*places, ("", environment().state_home.expanduser() / OUTSIDE)):
        try:
            status = place.lstat()
        except OSError:
            continue
        facts.append((path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
    return tuple(facts)


_SECRET_KEY = re.compile(
    r"(.*[_-])?(api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|secret|token|password|passwd|credentials?)",
    re.IGNORECASE,
)
# Below these keys the names are the user's own: a field called `token` is no secret.
_OWN_NAMES = {"schema", "expected"}
_REMEDY = "remove it, give the provider's key a new value, and name a variable with `global.embedding.api_key_env`"


def secret_findings(document: Document) -> list[Finding]:
    """Return a finding for each value that looks like a secret, by its form or by the name of its key."""
    message = "looks like a secret; keys come from the environment alone"
    return [
        Finding("E_CONFIG", message, document.path, document.line(place), _hide_secret_steps(place), _REMEDY)
        for place in _find_secret_places(document.value, "", True)
    ]


def drop_secret_findings(findings: list[Finding], secrets: list[Finding]) -> list[Finding]:
    """Return the secrets' findings, and the other findings that cannot repeat a secret: those about other lines."""
    secret_lines = {(finding.path, finding.line) for finding in secrets}
    safe_findings = [finding for finding in findings if _hide_secret_steps(finding.field) == finding.field]
    return [*secrets, *(finding for finding in safe_findings if (finding.path, finding.line) not in secret_lines)]


def _hide_secret_steps(place: str) -> str:
    """Return a pointer up to its first step that is itself a secret."""
    steps = place.split("/")
    secret = next((index for index, step in enumerate(steps) if looks_secret(step)), len(steps))
    return "/".join(steps[:secret])


def _find_secret_places(value: Any, place: str, by_name: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            inside = place + pointer(key)
            has_secret_name = by_name and bool(_SECRET_KEY.fullmatch(key)) and _has_value(item)
            if has_secret_name or looks_secret(key):
                yield inside
            else:
                yield from _find_secret_places(item, inside, by_name and key not in _OWN_NAMES)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_secret_places(item, place + pointer(index), by_name)
    elif isinstance(value, str) and looks_secret(value):
        yield place


def _has_value(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != ""
