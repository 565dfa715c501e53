"""What this machine remembers of bases, in the user's state folder: hosts and keys that its user has accepted, and schemas that
were checked and found sound. It lies outside of every clone, or a clone could bring it along.

A configuration is data from a clone. It may name hosts and key variables, but nothing is sent to a host and no key is
read until the user has accepted exactly these values.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from duckkb.errors import Unavailable
from duckkb.ontology import schema_cache
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ontology.source import THIS_MACHINE, Document, read_yaml
from duckkb.settings import EmbeddingSettings, Environment, Settings

OUTSIDE = "collections.json"
_ACCEPTED, _COMMANDS, _SOUND = "trust.json", "commands.json", "schemas.json"
_FORMAT = 1
_MOST_SCHEMAS = 4096


def demands(settings: Settings, kinds: Iterable[RecordType] = ()) -> dict[str, str]:
    """The effective values that need trust, by the name of their setting; empty where there are none. `kinds` are the types of
    the base, whose policies may name models of their own."""
    own = settings.embedding
    given = {
        "global.embedding.base_url": own.address or own.base_url,
        "global.embedding.api_key_env": own.key_variable or own.api_key_env,
    }
    for kind in kinds:
        wanted = kind.settings(settings).embedding
        if _demanded_by(wanted) not in (_demanded_by(own), (own.base_url, own.api_key_env)):
            given[f"{kind.name}.embedding.base_url"] = wanted.address
            given[f"{kind.name}.embedding.api_key_env"] = wanted.key_variable
    for name, asked in (("rerank", settings.rerank), ("expand", settings.expand)):
        if asked.is_asked:  # also at the address of this machine: a clone must not send anything to a port of it
            given |= {f"global.{name}.base_url": asked.base_url, f"global.{name}.api_key_env": asked.api_key_env}
    for model in settings.models.values():
        for index, one in enumerate(model.providers):
            at = f"global.models.{model.name}.providers.{index}"
            given |= {f"{at}.base_url": one.base_url, f"{at}.api_key_env": one.api_key_env}
    return {name: value for name, value in given.items() if value is not None}


def is_demanded(wanted: EmbeddingSettings, settings: Settings, kinds: Iterable[RecordType]) -> bool:
    """Whether `demands` has the address and key variable of this model, so that whoever accepts them knows of it."""
    models = [settings.embedding, *(kind.settings(settings).embedding for kind in kinds)]
    return _demanded_by(wanted) in [_demanded_by(model) for model in models]


def _demanded_by(model: EmbeddingSettings) -> tuple[str | None, str | None]:
    return model.address, model.key_variable


def trust_hash(demanded: Mapping[str, str]) -> str:
    """SHA-256 (hex) of the demands; other settings do not change it."""
    text = json.dumps(demanded, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def is_trusted(root: Path, settings: Settings, env: Environment, kinds: Iterable[RecordType] = ()) -> bool:
    """Whether this run may follow the demands: there are none, DUCKKB_TRUST names them, or the user accepted them."""
    demanded = demands(settings, kinds)
    if not demanded:
        return True
    wanted = trust_hash(demanded)
    return wanted in (env.trust or "").split(",") or wanted in _accepted(root, env)


def _accepted(root: Path, env: Environment) -> list[str]:
    """The hashes of what the user accepts for this base: of its configuration, and of other models beside that."""
    found = _read(env, _ACCEPTED).get(str(root.resolve()))
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, str)]


def accept(
    root: Path, settings: Settings, env: Environment, kinds: Iterable[RecordType] = (), *, beside: bool = False
) -> str:
    """Remember that the user accepts the demands of this base as they stand, and no others; or these `beside` those that were
    accepted before. Returns their hash.

    Raises `errors.Unavailable` (E_IO) where the user's state folder cannot be written.
    """
    digest = trust_hash(demands(settings, kinds))
    _keep(env, _ACCEPTED, root, list(dict.fromkeys([*_accepted(root, env), digest])) if beside else digest)
    return digest


def _keep(env: Environment, name: str, root: Path, value: Any) -> None:
    """Remember something of a base in a file of the state folder."""
    try:
        _write(env, name, _read(env, name) | {str(root.resolve()): value})
    except OSError as error:
        message = f"this cannot be remembered in {env.state_home / name}: {error.strerror}"
        raise Unavailable(message, "E_IO", "set XDG_STATE_HOME to a folder of yours outside the base") from error


def outside_collections(root: Path, env: Environment) -> tuple[Document, ...]:
    """The definitions of this base's collections whose folders lie outside of it, as one document; none where it has none."""
    found = outside_definitions(root, env)
    return (read_yaml(json.dumps({"collections": found}).encode(), THIS_MACHINE),) if found else ()


def outside_definitions(root: Path, env: Environment) -> dict[str, Any]:
    """The same by name, as values."""
    found = _read(env, OUTSIDE).get(str(root.resolve()))
    return dict(found) if isinstance(found, dict) else {}


def remember_outside(root: Path, env: Environment, definitions: Mapping[str, Any]) -> None:
    """Replace them. Raises `errors.Unavailable` (E_IO) where the user's state folder cannot be written."""
    _keep(env, OUTSIDE, root, dict(definitions))


def commands(settings: Settings, ontology: Ontology) -> dict[str, str]:
    """The commands that the configuration names, by the name of their setting: none runs before it is trusted."""
    own = {"arch.command": settings.arch.command} if settings.arch.command else {}
    fetching = ontology.update_commands.items()
    return {**own, **{f"collections.{name}.source.update_command": command for name, command in fetching}}


def are_commands_trusted(root: Path, commands: Mapping[str, str], env: Environment) -> bool:
    """Whether the user accepted exactly these commands for this base."""
    return not commands or _read(env, _COMMANDS).get(str(root.resolve())) == trust_hash(commands)


def accept_commands(root: Path, commands: Mapping[str, str], env: Environment) -> None:
    """Remember that the user accepts them. Raises `errors.Unavailable` (E_IO)."""
    _keep(env, _COMMANDS, root, trust_hash(commands))


def recall_schemas(env: Environment) -> None:
    """Take in which schemas were found sound (`ontology.schema_cache`); what is not remembered is checked once more."""
    schema_cache.recall(_known_schemas(env))


def remember_schemas(env: Environment) -> None:
    """Remember what was found sound since; where that cannot be written it is checked again another time."""
    found = schema_cache.fresh()
    if found:
        names = [*(name for name in _known_schemas(env) if name not in found), *sorted(found)][-_MOST_SCHEMAS:]
        with suppress(OSError):
            _write(env, _SOUND, {"format": _FORMAT, "sound": names})


def _known_schemas(env: Environment) -> list[str]:
    stored = _read(env, _SOUND)
    names = stored.get("sound") if stored.get("format") == _FORMAT else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _read(env: Environment, name: str) -> dict[str, Any]:
    """A file of the state folder. One that cannot be read means that nothing was accepted or found sound, never that all
    was."""
    try:
        found = json.loads((env.state_home.expanduser() / name).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(env: Environment, name: str, value: Mapping[str, Any]) -> None:
    """Replace the file in one step; only the user may read it (mkstemp makes it 0600)."""
    from tempfile import mkstemp

    folder = env.state_home.expanduser()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, draft = mkstemp(prefix=f".{name}-", dir=folder)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(value, indent=1, sort_keys=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(folder / name)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
