"""What the files of a base say to who corrects a command line about it: its folder, types and policies."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from duckkb.errors import DuckkbError

if TYPE_CHECKING:
    from duckkb.ontology.model import Ontology, RecordType


def first_of_records(ctx: click.Context, words: Sequence[str]) -> str:
    """The first of the words that is a type of records and not of documents; empty where none is."""
    kinds = {*type_names(ctx)} - {*type_names(ctx, documents=True)}
    return next((word for word in words if word in kinds), "")


def type_names(ctx: click.Context, *, documents: bool = False) -> list[str]:
    """The names of `base_types`, or of those of documents alone."""
    return [kind.name for kind in base_types(ctx) if not documents or (kind.kind == "node" and kind.source)]


def base_types(ctx: click.Context) -> "list[RecordType]":
    """The types of the base that the line is about; none where they cannot be read."""
    return [*(base_ontology(ctx) or ())]


def base_ontology(ctx: click.Context) -> "Ontology | None":
    """The types and policies of the base that the line is about, by its files; None where they cannot be read."""
    from duckkb import config

    root = base_root(ctx)
    with suppress(DuckkbError, OSError):
        return config.load(root, config.around(root)).ontology if root else None
    return None


def base_root(ctx: click.Context) -> Path | None:
    """The folder of the base that the line is about; None without one."""
    from duckkb import config

    with suppress(DuckkbError, OSError):
        return config.find_root(Path.cwd(), named_base(ctx), config.environment())
    return None


def named_base(ctx: click.Context) -> str | None:
    """The base that the line names."""
    base_path: str | None = ctx.find_root().params.get("kb") or (ctx.find_object(dict) or {}).get("kb")
    return base_path
