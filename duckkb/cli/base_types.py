"""Facts about the base for the correction of command lines: folder, types, policies, and types that a filter fits."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from duckkb.errors import DuckkbError, FilterError

if TYPE_CHECKING:
    from duckkb.app import KnowledgeBase
    from duckkb.ontology.model import Ontology, RecordType

_NEAR = 0.8
"""The similarity (0 to 1) from which a word counts as a misspelt name."""


def first_of_records(ctx: click.Context, words: Sequence[str]) -> str:
    """Return the first of the words that is a type of records, not of documents; empty without one."""
    kinds = {*type_names(ctx)} - {*type_names(ctx, documents=True)}
    return next((word for word in words if word in kinds), "")


def type_names(ctx: click.Context, *, documents: bool = False) -> list[str]:
    """Return the names of the base's types; with `documents`, only those of document types."""
    return [kind.name for kind in base_types(ctx) if not documents or (kind.kind == "node" and kind.source)]


def base_types(ctx: click.Context) -> "list[RecordType]":
    """Return the types of the base that the line is about; empty where they cannot be read."""
    return [*(base_ontology(ctx) or ())]


def base_ontology(ctx: click.Context) -> "Ontology | None":
    """Read types and policies of the base that the line is about from its files; None where they cannot be read."""
    from duckkb import config

    root = base_root(ctx)
    with suppress(DuckkbError, OSError):
        return config.load(root, config.read_environment(root)).ontology if root else None
    return None


def base_root(ctx: click.Context) -> Path | None:
    """Return the folder of the base that the line is about; None without one."""
    from duckkb import config

    with suppress(DuckkbError, OSError):
        return config.find_root(Path.cwd(), read_base_name(ctx), config.environment())
    return None


def find_record_types(ctx: click.Context, identity: str) -> list[str]:
    """The types of the base that have a node with this identity; none where it cannot be read."""
    from duckkb import app

    names = []
    with suppress(DuckkbError, OSError), app.open(read_base_name(ctx), command=True) as kb:
        for kind in base_types(ctx):
            with suppress(DuckkbError):
                if kind.kind == "node" and len(kind.identity_fields) == 1:
                    names.append(kb.get(kind.name, identity)["_type"])
    return names


def find_first_identity(ctx: click.Context, kind: str) -> str:
    """The identity of the first record of a type; `...` without one."""
    from duckkb import app

    with suppress(DuckkbError, OSError), app.open(read_base_name(ctx), command=True) as kb:
        return next((str(hit.identity) for hit in kb.find(kind, where="true", limit=1)), "...")
    return "..."


def is_revision(root: Path, name: str) -> bool:
    """Whether git knows a commit, branch or tag by this name."""
    from duckkb.truth.git.revisions import revision

    with suppress(DuckkbError, OSError):
        return bool(revision(root, name).commit)
    return False


def name_restored(file: str) -> str:
    """Return a new folder beside a backup, to restore it to."""
    from duckkb.truth.backup.gather import SUFFIX

    folder = file.removesuffix(SUFFIX)
    return f"{folder}-restored" if Path(folder).exists() else folder


def read_base_name(ctx: click.Context) -> str | None:
    """Return the base that the line names."""
    base_path: str | None = ctx.find_root().params.get("kb") or (ctx.find_object(dict) or {}).get("kb")
    return base_path


def find_near_names(ctx: click.Context, group: str, word: str) -> list[str]:
    """Return the names nearest to a word: policies for the group `policy`, collections for other groups.

    They are collections of records for `col`, else document collections.

    Returns the word itself where no file of the base has the names.
    """
    import difflib

    from duckkb.ontology.presets import presets

    ontology = base_ontology(ctx)
    if group == "tenant" or ontology is None:
        return [word]
    if group == "policy":
        names = [*ontology.policies, *presets()]
    else:
        names = [kind.name for kind in ontology if (kind.source if group == "collection" else kind.is_collection)]
    by_case = {name.lower(): name for name in names}
    return [by_case[near] for near in difflib.get_close_matches(word.lower(), by_case, 1, _NEAR)]


def find_fitting_type(ctx: click.Context, names: Sequence[str], condition: str) -> tuple[str, str] | None:
    """Return the first type that fits a filter, and the filter in the form that it takes; None without one.

    A fitting type has the filter's fields; types with matching records come first.
    """
    from duckkb import app

    with suppress(DuckkbError, OSError), app.open(read_base_name(ctx), command=True) as kb:
        fitting = [(name, better) for name in names if (better := _fit_filter(kb, name, condition))]
        fitting.sort(key=lambda line: not [*kb.find(line[0], where=line[1], limit=1)])
        return next(iter(fitting), None)
    return None


def _fit_filter(kb: "KnowledgeBase", kind: str, condition: str) -> str:
    """Return the filter as the records of a type take it; empty where they do not have its fields."""
    try:
        kb.find(kind, where=condition, limit=1)
    except FilterError as error:
        better = error.correction[1] if error.correction is not None else condition
        return _fit_filter(kb, kind, better) if better != condition else ""
    return condition
