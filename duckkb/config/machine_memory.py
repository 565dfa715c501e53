"""What this machine remembers of bases: trusted hosts and keys, and schemas that passed their check.

It lies in the user's state folder, outside every clone; a clone could bring it along otherwise. It consists of
a few small JSON files under one lock. A writer reads, changes and replaces a file while it holds that lock, so
that concurrent commands lose no update; readers need no lock.

A configuration is data from a clone. It may name hosts and key variables, but nothing is sent to a host and no
key is read until the user has accepted exactly these values.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from duckkb.ontology import json_schema
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ontology.yaml_source import THIS_MACHINE
from duckkb.storage import base_lock, clone_state
from duckkb.types.errors import Unavailable
from duckkb.types.settings import EmbeddingSettings, Environment, Settings

OUTSIDE = "collections.json"
_ACCEPTED, _COMMANDS, _SOUND = "trust.json", "commands.json", "schemas.json"
_LOCKED, _WAIT_S = "remembered", 60.0
_FORMAT = 1
_MOST_SCHEMAS = 4096


def demands(settings: Settings, kinds: Iterable[RecordType] = ()) -> dict[str, str]:
    """Return the effective values that need trust, by the name of their setting; empty without any.

    `kinds` are the base's types, whose policies may name models of their own.
    """
    embedding = settings.embedding
    values = {
        "global.embedding.base_url": embedding.address or embedding.base_url,
        "global.embedding.api_key_env": embedding.key_variable or embedding.api_key_env,
    }
    for kind in kinds:
        type_embedding = kind.settings(settings).embedding
        if _read_demands(type_embedding) not in (_read_demands(embedding), (embedding.base_url, embedding.api_key_env)):
            values[f"{kind.name}.embedding.base_url"] = type_embedding.address
            values[f"{kind.name}.embedding.api_key_env"] = type_embedding.key_variable
    for name, endpoint in (("rerank", settings.rerank), ("expand", settings.expand)):
        if endpoint.is_asked:  # even on this machine: a clone must not send anything to its ports
            values |= {f"global.{name}.base_url": endpoint.base_url, f"global.{name}.api_key_env": endpoint.api_key_env}
    for model in settings.models.values():
        for index, provider in enumerate(model.providers):
            at = f"global.models.{model.name}.providers.{index}"
            values |= {f"{at}.base_url": provider.base_url, f"{at}.api_key_env": provider.api_key_env}
    return {name: value for name, value in values.items() if value is not None}


def is_demanded(wanted: EmbeddingSettings, settings: Settings, kinds: Iterable[RecordType]) -> bool:
    """Return whether `demands` has this model's address and key variable, so that the user accepts them knowingly."""
    models = [settings.embedding, *(kind.settings(settings).embedding for kind in kinds)]
    return _read_demands(wanted) in [_read_demands(model) for model in models]


def _read_demands(model: EmbeddingSettings) -> tuple[str | None, str | None]:
    return model.address, model.key_variable


def trust_hash(demanded: Mapping[str, str]) -> str:
    """Return the SHA-256 (hex) of the demands; other settings do not change it."""
    text = json.dumps(demanded, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_trusted(root: Path, settings: Settings, env: Environment, kinds: Iterable[RecordType] = ()) -> bool:
    """Return whether this run may follow the demands.

    It may where there are none, DUCKKB_TRUST names them, or the user accepted them.
    """
    demand_values = demands(settings, kinds)
    if not demand_values:
        return True
    digest = trust_hash(demand_values)
    return _is_in_environment(digest, env) or digest in _read_hashes(root, env)


def _is_in_environment(digest: str, env: Environment) -> bool:
    return digest in (env.trust or "").split(",")


def _read_hashes(root: Path, env: Environment) -> list[str]:
    """Return the hashes that the user accepted for this base: of its configuration, and of other models beside it."""
    return _list_hashes(_read(env, _ACCEPTED).get(str(root.resolve())))


def _list_hashes(value: object) -> list[str]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]


def accept(
    root: Path, settings: Settings, env: Environment, kinds: Iterable[RecordType] = (), *, beside: bool = False
) -> str:
    """Remember that the user accepts the base's current demands, and only these; return their hash.

    With `beside`, earlier demands stay accepted too. Raises `errors.Unavailable` (E_IO) where the user's state
    folder cannot be written.
    """
    digest = trust_hash(demands(settings, kinds))
    _keep(
        env,
        _ACCEPTED,
        root,
        lambda old_value: list(dict.fromkeys([*_list_hashes(old_value), digest])) if beside else digest,
    )
    return digest


def _keep(env: Environment, name: str, root: Path, change: Callable[[Any], Any]) -> None:
    """Replace what a file of the state folder remembers of a base by the result of `change`."""
    base = str(root.resolve())
    with _hold_lock(env, name):
        entries = _read(env, name)
        _write(env, name, entries | {base: change(entries.get(base))})


@contextmanager
def _hold_lock(env: Environment, name: str) -> Iterator[None]:
    """Lock all files of the state folder for a change.

    Raises `errors.Unavailable` (E_LOCKED naming the holder, E_IO).
    """
    folder = env.state_home.expanduser()
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            stack.enter_context(base_lock.hold_lock_beside(folder / _LOCKED, "exclusive", _WAIT_S))
        except OSError as error:
            raise _make_refusal(folder / name, error.strerror or str(error)) from error
        yield


def outside_files(definitions: Mapping[str, Any]) -> dict[str, bytes | None]:
    """Return definitions of collections whose folders lie outside a base, in the form of files that `load` takes."""
    data = json.dumps({"collections": dict(definitions)}).encode() if definitions else None
    return {THIS_MACHINE: data}


def outside_definitions(root: Path, env: Environment) -> dict[str, Any]:
    """Return the definitions of the base's collections whose folders lie outside it, by name, as values."""
    return _to_definitions(_read(env, OUTSIDE).get(str(root.resolve())))


def change_outside(root: Path, env: Environment, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Replace these definitions by the result of `change`; keep them where it raises.

    Raises `errors.Unavailable` (E_LOCKED, E_IO) where the user's state folder cannot be written.
    """
    _keep(env, OUTSIDE, root, lambda old_value: dict(change(_to_definitions(old_value))))


def _to_definitions(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def commands(settings: Settings, ontology: Ontology) -> dict[str, str]:
    """Return the commands that the configuration names, by their setting; none runs before it is trusted."""
    arch_commands = {"arch.command": settings.arch.command} if settings.arch.command else {}
    fetching = ontology.update_commands.items()
    return {**arch_commands, **{f"collections.{name}.source.update_command": command for name, command in fetching}}


def are_commands_trusted(root: Path, commands: Mapping[str, str], env: Environment) -> bool:
    """Return whether this run may run exactly these commands.

    It may where there are none, DUCKKB_TRUST names them, or the user accepted them.
    """
    digest = trust_hash(commands)
    return not commands or _is_in_environment(digest, env) or _read(env, _COMMANDS).get(str(root.resolve())) == digest


def accept_commands(root: Path, commands: Mapping[str, str], env: Environment) -> None:
    """Remember that the user accepts these commands. Raises `errors.Unavailable` (E_IO)."""
    _keep(env, _COMMANDS, root, lambda _: trust_hash(commands))


def recall_schemas(env: Environment) -> None:
    """Load which schemas passed their check (`ontology.json_schema`); others are checked again."""
    json_schema.recall(_read_schemas(env))


def remember_schemas(env: Environment) -> None:
    """Save the schemas that passed since; where they cannot be saved, they are checked again another time."""
    new_names = json_schema.fresh()
    if new_names:
        with suppress(Unavailable), _hold_lock(env, _SOUND):
            names = [*(name for name in _read_schemas(env) if name not in new_names), *sorted(new_names)][
                -_MOST_SCHEMAS:
            ]
            _write(env, _SOUND, {"format": _FORMAT, "sound": names})


def _read_schemas(env: Environment) -> list[str]:
    content = _read(env, _SOUND)
    names = content.get("sound") if content.get("format") == _FORMAT else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _read(env: Environment, name: str) -> dict[str, Any]:
    """Read a file of the state folder.

    An unreadable file means that nothing was accepted or passed, never that all was.
    """
    try:
        content = json.loads((env.state_home.expanduser() / name).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(env: Environment, name: str, value: Mapping[str, Any]) -> None:
    """Replace a file atomically, readable only by the user; hold the lock. Raises `errors.Unavailable` (E_IO)."""
    path = env.state_home.expanduser() / name
    try:
        clone_state.write_atomic(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode(), mode=0o600)
    except Unavailable as error:
        raise _make_refusal(path, str(error)) from error


def _make_refusal(path: Path, why: str) -> Unavailable:
    message = f"this cannot be remembered in {path}: {why}"
    return Unavailable(message, "E_IO", "set XDG_STATE_HOME to a folder of yours outside the base")
