"""Loading of config.yaml and ontology/**/*.yaml into Settings and Ontology, or all problems at once.

Finds the base and its files (regular ones; links are not followed), reads them, and searches them for keys and
passwords.

A base's settings with another embedding model, as if config.yaml named it.

The model is given as config.yaml names it: by NAME alone, which changes only `global.embedding_model`, or by a
YAML or JSON mapping `{embedding_model: NAME, embedding: {base_url: ...}}` whose keys replace those below
`global:`.

Stand-ins: folders of the user's own for published bases without a clone here.

The whole configuration in one normal form, each value with its origin."""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from duckkb.atomic_write import open_without_blocking
from duckkb.config.environment import environment, plain_around
from duckkb.config.machine_memory import OUTSIDE, outside_definitions, outside_files, recall_schemas
from duckkb.config.setting_keys import DEFAULT, KEYS, SECTIONS, read_settings
from duckkb.ontology.model import EdgeType, Ontology, Policy, RecordType, SearchField
from duckkb.ontology.names import looks_secret
from duckkb.ontology.ontology_files import load as load_ontology
from duckkb.ontology.ontology_files import questions as read_questions
from duckkb.ontology.ontology_files import sort_findings
from duckkb.ontology.policies import POLICY_KEYS
from duckkb.ontology.yaml_source import MAX_BYTES, MAX_FINDINGS, Document, pointer, read_yaml, root_section
from duckkb.storage import clone_state
from duckkb.types.errors import Finding, OntologyError, StateError, Unavailable, UsageError
from duckkb.types.settings import DEFAULT_MODEL, NO_MODEL, ChatModelSettings, Environment, Settings


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
    from duckkb.storage import git_facts  # it runs git

    return git_facts.is_held_at_head(root, path)


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


_MODEL, _EMBEDDING = "embedding_model", "embedding"
_OF_ENDPOINTS = ("base_url", "api_key_env", "dimensions", "concurrency", "price_per_million_tokens")
_MODEL_REMEDY = (
    "give NAME, or '{embedding_model: NAME, embedding: {base_url: URL, ...}}' as below `global:` in config.yaml"
)


class OtherModel(Struct, frozen=True):
    """Settings with another model, and the `line` of config.yaml that switches to it.

    The line is `embedding_model: NAME` below `global:` where nothing else differs, else the whole of `global:`.
    """

    settings: Settings
    line: str


def other_model(loaded: Loaded, model: str) -> OtherModel:
    """Return a base's settings with the model that a text names.

    Raises `errors.UsageError` where the text is invalid, or the settings would not load.
    """
    configuration = loaded.documents[0].value
    present: Mapping[str, Any] = configuration.get("global") or {}
    changes = _read_changes(model.strip(), present)
    whole = {**present, **changes}
    data = json.dumps({**configuration, "global": whole}, ensure_ascii=False).encode()
    document = read_yaml(data, "the model")
    problems: list[Finding] = [*document.findings, *secret_findings(document)]
    settings = read_settings(root_section(document, "E_CONFIG", problems)) if not problems else loaded.settings
    if problems:
        first = problems[0]
        raise UsageError(f"the model cannot be configured: {first.field} {first.message}", suggestion=_MODEL_REMEDY)
    name = settings.embedding.model
    if name == NO_MODEL:
        raise UsageError(f"{NO_MODEL} is not an embedding model", suggestion=_MODEL_REMEDY)
    line = f"{_MODEL}: {json.dumps(name)}" if changes.keys() == {_MODEL} else f"global: {json.dumps(whole)}"
    return OtherModel(replace(loaded.settings, embedding=settings.embedding), line)


def _read_changes(model: str, present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys below `global:` that a text changes, with their values."""
    if not model.startswith("{"):
        if not model:
            raise UsageError("the model has no name", suggestion=_MODEL_REMEDY)
        changes: dict[str, Any] = {_MODEL: model}
    else:
        document = read_yaml(model.encode("utf-8", "surrogateescape"), "the model")
        changes = dict(document.value)
        if document.findings or not changes or not changes.keys() <= {_MODEL, _EMBEDDING}:
            problem = (
                document.findings[0].message if document.findings else f"has other keys than {_MODEL}, {_EMBEDDING}"
            )
            raise UsageError(f"the model {problem}", suggestion=_MODEL_REMEDY)
    embedding = present.get(_EMBEDDING) or {}
    if (
        changes.get(_MODEL) == DEFAULT_MODEL
        and _EMBEDDING not in changes
        and not embedding.keys().isdisjoint(_OF_ENDPOINTS)
    ):
        changes[_EMBEDDING] = {name: value for name, value in embedding.items() if name not in _OF_ENDPOINTS}
    return changes


_FOLDER = "published"
_MARK = "# This folder represents a published base (duckkb --backend).\n"


def stand_in(backend: str) -> Path:
    """Return the stand-in for an address.

    Raises `errors.Unavailable` (E_IO) where the state folder cannot be written.
    """
    folder = plain_around(None).state_home / _FOLDER / blake2b(backend.encode(), digest_size=12).hexdigest()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_stand_in(folder):
            clone_state.write_atomic(folder / CONFIG, _MARK.encode())
    except (OSError, Unavailable) as error:
        raise Unavailable(
            f"{folder} cannot be made: {getattr(error, 'strerror', None) or error}",
            code="E_IO",
            suggestion="name another folder with XDG_STATE_HOME",
        ) from error
    return folder


def is_stand_in(root: Path) -> bool:
    """Return whether a folder is a stand-in."""
    try:
        return (root / CONFIG).read_text("utf-8") == _MARK
    except (OSError, ValueError):
        return False


def normalize_config(loaded: Loaded) -> dict[str, Any]:
    """Return the configuration in the shape of config.yaml, each value as `{"value", "origin"}`.

    The origin is `default`, `path:line`, or the environment variable that gave the value.
    """
    configuration: dict[str, Any] = {}
    for key in KEYS:
        place = configuration
        for step in key.section:
            place = place.setdefault(step, {})
        place[key.leaf] = _make_leaf(key.get_value(loaded.settings), loaded.settings.origins.get(key.name, DEFAULT))
    if rows := loaded.settings.models:
        configuration["global"]["models"] = {name: _describe_model(row, loaded.settings) for name, row in rows.items()}
    origin = _Origin(loaded.documents)
    nodes = loaded.ontology.nodes.values()
    configuration["nodes"] = {kind.name: _type(kind, "nodes", origin) for kind in nodes if not kind.is_collection}
    configuration["collections"] = {kind.name: _describe_collection(kind) for kind in nodes if kind.is_collection}
    configuration["edges"] = {kind.name: _type(kind, "edges", origin) for kind in loaded.ontology.edges.values()}
    configuration["policies"] = {
        name: _describe_policy(policy, origin) for name, policy in loaded.ontology.policies.items()
    }
    configuration["questions"] = [
        _make_leaf(dict(item), document.place(pointer("questions", index)))
        for document in loaded.documents
        for index, item in enumerate(document.value.get("questions") or ())
    ]
    configuration["environment"] = {
        "kb": _describe_variable(loaded.env.kb, "DUCKKB_KB"),
        "writer": _describe_variable(loaded.env.writer, "DUCKKB_WRITER"),
        "sandbox": _describe_variable(loaded.env.sandbox, "DUCKKB_SANDBOX"),
        "agent": _describe_variable(loaded.env.agent, "DUCKKB_AGENT"),
    }
    return configuration


class _Origin:
    """The origin of a value: the place of its pointer in the first document that has it."""

    def __init__(self, documents: tuple[Document, ...]) -> None:
        self._documents = documents

    def __call__(self, *keys: str) -> str:
        at = pointer(*keys)
        return next((document.place(at) for document in self._documents if at in document.lines), DEFAULT)


def _make_leaf(value: Any, origin: str) -> dict[str, Any]:
    return {"value": value, "origin": origin}


def _describe_variable(value: Any, name: str) -> dict[str, Any]:
    return _make_leaf(value, name if value else DEFAULT)


def _type(kind: RecordType, group: str, origin: _Origin) -> dict[str, Any]:
    description: dict[str, Any] = {}
    if isinstance(kind, EdgeType):
        values: Mapping[str, Any] = {
            "label": kind.table,
            "from": list(kind.from_types),
            "to": list(kind.to_types),
            "cardinality": kind.cardinality,
        }
    else:
        values = {"table": kind.table}
    values = {**values, "identity": list(kind.identity), "schema": dict(kind.schema)}
    values["policy"] = kind.policy.name if kind.policy else None
    for key, value in values.items():
        description[key] = _make_leaf(value, origin(group, kind.name, key))
    description["search"] = {
        key: _make_leaf([_search_field(item) for item in items], origin(group, kind.name, "search", key))
        for key, items in (("full_text", kind.full_text), ("vectors", kind.vectors))
    }
    description["merge"] = {
        "granularity": _make_leaf(kind.granularity, origin(group, kind.name, "merge", "granularity"))
    }
    description["review"] = _make_leaf("required" if kind.review else None, origin(group, kind.name, "review"))
    return description


def _describe_collection(kind: RecordType) -> dict[str, Any]:
    """Return a collection in the form of its definition."""
    policy = dict(kind.policy.source) if kind.policy else {}
    return {key: _make_leaf(value, kind.place) for key, value in (("table", kind.table), ("policy", policy))}


def _describe_model(row: ChatModelSettings, settings: Settings) -> dict[str, Any]:
    """Return a row of the registry of chat models, with its providers in their order."""

    def leaves(values: Mapping[str, Any], at: str) -> dict[str, Any]:
        return {
            name: _make_leaf(value, settings.origins.get(f"{at}.{name}", DEFAULT)) for name, value in values.items()
        }

    at, model_values = f"global.models.{row.name}", to_builtins(row)
    providers, _ = model_values.pop("providers"), model_values.pop("name")
    provider_leaves = [leaves(provider, f"{at}.providers.{index}") for index, provider in enumerate(providers)]
    return {"providers": provider_leaves} | leaves(model_values, at)


def _search_field(item: SearchField) -> dict[str, Any]:
    options = {"weight": item.weight, "language": item.language, "chunk_size": item.chunk_size}
    return {"field": item.name} | {key: value for key, value in options.items() if value is not None}


def _describe_policy(policy: Policy, origin: _Origin) -> dict[str, Any]:
    at = ("policies", policy.name)
    plain = {key: _make_leaf(policy.source.get(key), origin(*at, key)) for key in POLICY_KEYS if key in policy.source}
    groups = {key: policy.overrides.get(key) for key in ("fusion", "expansion")}
    return plain | {
        "intents": {
            "allowed": _make_leaf(list(policy.intents) if policy.intents else None, origin(*at, "intents", "allowed")),
            "default": _make_leaf(policy.default_intent, origin(*at, "intents", "default")),
        },
        **{key: _make_leaf(to_builtins(value) if value else None, origin(*at, key)) for key, value in groups.items()},
    }
