"""The action import: files as records of one type, in one write.

Detection of records that an import would store a second time under another id.

Without --id these are stored under ids of their own, with --id under generated ones.

Import to an unknown type: a collection of that name is made with its first records, in one write."""

import codecs
import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.documents.document import read_byte_order_mark
from duckkb.engine.base import Base
from duckkb.engine.integrity import suggest_edge_type
from duckkb.engine.meaning import with_vectors
from duckkb.engine.write import WriteOptions, refuse_existing_type
from duckkb.engine.write_draft import Given, Upsert
from duckkb.ontology.model import RecordType
from duckkb.ontology.names import is_policy_name, nearest
from duckkb.ontology.ontology_files import collection_of, define, path_of
from duckkb.operations.collection_archive import own_file, reject_reserved_name
from duckkb.operations.collections import refuse_unfit, resolve_policy, validate_collection_name
from duckkb.operations.field_map import (
    FieldMap,
    describe_generated_ids,
    id_of_contents,
    identity_option_problem,
    read_document,
)
from duckkb.operations.name_resolution import check_records, kind_to_write, regular_file
from duckkb.operations.record_writes import Item, store
from duckkb.operations.source_files import (
    TYPES,
    ColumnTypes,
    ImportRequest,
    ParquetTable,
    TextTable,
    delimiter_of,
    make_decoding_error,
    parse_type_name,
    read_declared_types,
    unknown_columns,
)
from duckkb.storage.line import LineError, LineShape, encode, parse_json, parse_objects
from duckkb.storage.part import pause_collector
from duckkb.storage.tree import Tree
from duckkb.types.errors import Conflict, DuckkbError, Finding, InvalidRecord, NotFound, UsageError, shell_word
from duckkb.types.queries import ImportSummary, Notice, Receipt
from duckkb.types.records import FROM, TO

_POLICY = "knowledge-base"
_NEAR = 0.75
"""The similarity (0 to 1) from which a name counts as a misspelt type."""


class ImportTarget(Struct, frozen=True):
    """The target of an import: a type of a base.

    `definition` is what the write adds to the ontology for it, None for an existing type; `base` has it already.
    """

    base: Base
    kind: RecordType
    definition: bytes | None = None


def import_target(base: Base, request: ImportRequest) -> ImportTarget:
    """Return the type that a request names, or a collection to be made for it.

    Raises `errors.NotFound` (E_UNKNOWN_TYPE) where the name is close to a type's, and for callers who cannot
    make a collection; `errors.UsageError` (E_RESERVED, E_PARAMS).
    """
    try:
        return ImportTarget(base, kind_to_write(base, request.type))
    except NotFound:
        if base.is_narrowed or base.wiring.published or not is_policy_name(str(request.type)):
            raise
    _refuse_slip(base, request)
    if base.wiring.at is not None:
        message = f"no type {request.type!r} is committed, and a proposal makes none: import it here, or make it and commit it first"
        raise NotFound(message, code="E_UNKNOWN_TYPE", suggestion=request.command(is_proposal=False))
    name = validate_collection_name(request.type)
    reject_reserved_name(name)
    refuse_existing_type(base, name)
    definition = define(name, resolve_policy(base, _POLICY), {})
    files = {path_of(name): definition}
    refuse_unfit(base, name, files)
    ontology = base.wiring.preview(files)
    tree = Tree(ontology, base.limits, base.tree.parts, base.tree.findings)
    beside = Base(replace(base.wiring, ontology=ontology), tree, base.cache, read_only=base.read_only)
    return ImportTarget(beside, ontology.nodes[name], definition)


def is_made_by_import(base: Base, kind: RecordType) -> bool:
    """Return whether an import would make this removed collection again, apart from its search fields."""
    try:
        data, new = own_file(base, kind), define(kind.name, resolve_policy(base, _POLICY), {})
    except DuckkbError:
        return False
    is_now, is_then = (collection_of(definition, path_of(kind.name))[0] for definition in (data, new))
    if is_now is None or is_then is None:
        return False
    names, current_names = ([field.name for field in of.vectors] for of in (is_then, is_now))
    return data in (new, with_vectors(new, names, current_names))


def refuse_nothing(target: ImportTarget, request: ImportRequest, records: int) -> None:
    """Raise `errors.NotFound` (E_UNKNOWN_TYPE) where files without records would make a collection."""
    if target.definition is not None and not records:
        message = f"no type {request.type!r}, and the input has no record to create a collection from"
        command = f"duckkb col init {request.type} --policy {_POLICY}"
        raise NotFound(message, code="E_UNKNOWN_TYPE", suggestion=command)


def refuse_edges(target: ImportTarget, records: Sequence[Mapping[str, Any]]) -> None:
    """Raise `errors.NotFound` (E_UNKNOWN_TYPE) where the records of a new collection are edges between records."""
    if target.definition is None or not records or any(not {FROM, TO} <= record.keys() for record in records):
        return
    name, tree = target.kind.name, target.base.tree
    commands = {suggest_edge_type(tree, record[FROM], record[TO], name) for record in records}
    if len(commands) == 1 and (command := commands.pop()):
        message = f"no type {name!r}, and the records join others by `from` and `to`: edges have a type of their own"
        raise NotFound(message, code="E_UNKNOWN_TYPE", suggestion=command)


def _refuse_slip(base: Base, request: ImportRequest) -> None:
    names = {name.casefold(): kind.name for kind in base.ontology for name in _list_names(kind)}
    if near := get_close_matches(request.type.casefold(), names, 1, _NEAR):
        nearest = names[near[0]]
        command = f"duckkb col init {request.type} --policy {_POLICY}"
        message = f"no type {request.type!r}; did you mean {nearest}? Else make a collection of this name first"
        raise NotFound(message, code="E_UNKNOWN_TYPE", suggestion=command)


def _list_names(kind: RecordType) -> Iterable[str]:
    return kind.name, kind.table


_MOST_IDS = 20
"""The most ids in a command; deleting this few needs no confirmation (`limits`)."""


def refuse_doubles(base: Base, kind: RecordType, fields: FieldMap, given: Sequence[Given]) -> None:
    """Raise `errors.Conflict` (E_EXISTS) where an import would duplicate stored records.

    That is where every record gets an id generated from its contents, or made of other fields by --id, and all but the
    id is stored already under another; or where a new record with its own id is stored under the generated one.
    Raises `errors.InvalidRecord` (E_IDENTITY) where ids would be generated though a column is evidently the id.
    """
    _refuse_own_ids(base, kind, fields, given)
    _refuse_other_ids(base, kind, fields, given)
    _refuse_evident_key(base, kind, fields, given)


def _refuse_evident_key(base: Base, kind: RecordType, fields: FieldMap, records: Sequence[Given]) -> None:
    """Raise `errors.InvalidRecord` (E_IDENTITY) where records would get generated ids though a column is their id.

    A file that was imported with generated ids before goes on with these.
    """
    key = fields.evident_key()
    if not key or any(base.tree.get(kind, record.identity) is not None for record in records):
        return
    message = f"the records have no {kind.identity_fields[0]}, and {key} tells all {len(records):,} of them apart"
    raise InvalidRecord(f"{message}; nothing was written", "E_IDENTITY", fields.command([key]), exit_code=1)


def removal_command(base: Base, kind: RecordType, ids: Sequence[str], count: int) -> str:
    """Return the command that deletes the records with these ids, of `count` that the type has; empty if too long.

    For a collection that the next import makes again as it is, the command deletes the whole collection.
    """
    if len(ids) == count and is_made_by_import(base, kind):
        return f"duckkb col rm {kind.name} --yes"
    return " ".join(["duckkb delete", kind.name, *ids]) if len(ids) <= _MOST_IDS else ""


def _refuse_own_ids(base: Base, kind: RecordType, fields: FieldMap, records: Sequence[Given]) -> None:
    new = (
        {str(record.identity[0]) for record in records if base.tree.get(kind, record.identity) is None}
        if fields.made_ids
        else set()
    )
    ids = list(dict.fromkeys(made_id for own_id, made_id in fields.made_ids.items() if own_id in new))
    if not ids:
        return
    (identity,) = kind.identity_fields
    count = (
        f"all {len(records):,} records are"
        if len(ids) == len(records) > 1
        else f"{len(ids):,} of {len(records):,} records are"
    )
    is_intact = all(_has_same_contents(base, kind, made_id) for made_id in ids)  # records edited since are kept
    removal = removal_command(base, kind, ids, base.tree.count(kind)) if is_intact else ""
    plain = "" if removal else fields.command_without_id()
    raise Conflict(
        f"{'the record is' if len(records) == 1 else count} in {kind.name} already, under an {identity} that an import made of "
        "its contents; nothing was written",
        code="E_EXISTS",
        suggestion=plain or fields.command_after(removal, fields.command(dry_run=False, is_proposal=False)),
    )


def _has_same_contents(base: Base, kind: RecordType, made_id: str) -> bool:
    """Return whether the record with an id generated from its contents still has these contents."""
    row = base.tree.get(kind, (made_id,))
    contents = (
        {}
        if row is None
        else {name: value for name, value in row.record.fields.items() if name != kind.identity_fields[0]}
    )
    return str(id_of_contents(contents)) == made_id


def _refuse_other_ids(base: Base, kind: RecordType, fields: FieldMap, records: Sequence[Given]) -> None:
    makes_ids = fields.generated_ids == len(records) or fields.makes_ids_of_others
    if not records or not makes_ids or base.tree.count(kind) < len(records):
        return
    if any(base.tree.get(kind, record.identity) is not None for record in records):
        return  # the same import again changes nothing
    (identity,) = kind.identity_fields
    stored_fields: dict[bytes, Mapping[str, Any]] = {
        _encode_content(row.record.fields, identity): row.record.fields for row in base.tree.rows(kind)
    }
    same = [stored_fields.get(_encode_content(record.fields, identity)) for record in records]
    if not all(same):
        return
    keys = [
        name
        for name in records[0].fields
        if name != identity and all(record is not None and record[identity] == record.get(name) for record in same)
    ]
    count = "the record is" if len(records) == 1 else f"all {len(records):,} records are"
    raise Conflict(
        f"{count} in {kind.name} already, under another {identity}; nothing was written",
        code="E_EXISTS",
        suggestion=fields.command(keys[:1]) if keys else fields.key_command() or fields.command(type=f"{kind.name}-2"),
    )


def _encode_content(fields: Mapping[str, Any], identity: str) -> bytes:
    return encode(
        {name: value for name, value in fields.items() if name != identity and value is not None}, LineShape(())
    )


_PIECE = 1 << 20  # bytes read at once
_HEAD = 1 << 16
_FORMATS = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "csv", ".tab": "csv",
    ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
_DOCUMENTS = {".md", ".markdown", ".html", ".htm", ".pdf", ".docx", ".rst"}
"""Extensions of files that are documents as a whole, unless they contain JSON."""


def import_files(
    base: Base,
    type: str,
    *files: str | Path,
    map: Mapping[str, str] | None = None,
    id: str | Sequence[str] = (),
    types: Mapping[str, str] | None = None,
    records: str | None = None,
    encoding: str = "",
    merge: bool = False,
    if_match: str | None = None,
    dry_run: bool = False,
    embed: bool = True,
) -> Receipt:
    """Upsert the records of JSONL, JSON, CSV, TSV and Parquet files, all or nothing; files are only read.

    An unknown `type` becomes a collection with the policy knowledge-base in the same write, unless the name is
    close to another type's. An empty cell is no field. The receipt's `imported` says what was read. Raises as
    `KnowledgeBase.put`.

    Args:
        map: {target: source}; a source is a field or a dotted path.
        id: The fields that are joined by `-` to the identity.
        types: Types of columns of text tables (`column_types.TYPES`); others are inferred.
        records: The path of the array in a JSON document.
    """
    id_fields = (id,) if isinstance(id, str) and id else tuple(id)
    names = tuple(str(file) for file in files)
    named_types = {field: parse_type_name(of) for field, of in (types or {}).items()}
    is_proposal = base.wiring.at is not None
    request = ImportRequest(
        type, names, map or {}, id_fields, named_types, records, encoding, merge, dry_run, is_proposal
    )
    target = import_target(base, request)
    base, kind = target.base, target.kind
    _refuse_options(kind, request)
    count = base.tree.count(kind)
    fields = FieldMap(kind, request, (lambda id: base.tree.id_of(kind, (id,)) is not None) if count else None)
    with ExitStack() as stack:
        sources = [_ImportSource(base, file, request, stack, kind.identity_fields) for file in files]
        columns = _infer_types(kind, request, [source.table for source in sources if source.table])
        items = _iter_items(sources, columns, fields)
        try:
            with pause_collector():
                options = WriteOptions(merge, if_match, dry_run, embed)
                wish = Upsert(kind, (), merge, keep_times=True, definition=target.definition)
                new_records = check_records(base, kind, items, single=False, partial=merge)
                refuse_edges(target, fields.first)
                refuse_doubles(base, kind, fields, new_records)
                receipt = store(base, replace(wish, given=new_records), options)
        except InvalidRecord as problem:
            lacks_identity = any(finding.code == "E_IDENTITY" for finding in problem.findings)
            broken = next((finding for finding in problem.findings if finding.code in ("E_ROWS", "E_JSON")), None)
            if broken is not None:  # of the file, whatever the type is
                problem.suggestion = f"mend {broken.place}, then run `{request.command()}` again"
            elif kind.kind == "node" and kind.source is not None:
                problem.suggestion = f"duckkb collection show {kind.name}"
            elif lacks_identity and (command := fields.key_command()):
                problem.suggestion = command
            raise
    refuse_nothing(target, request, fields.records)
    column_types = columns.map_types_by_column() | {
        name: of for source in sources for name, of in source.parquet_types.items()
    }
    summary = ImportSummary(fields.records, column_types, fields.generated_ids, tuple(fields.first))
    notices = _build_notices(base, kind, fields, receipt, count)
    return replace(receipt, imported=summary, notices=(*receipt.notices, *notices))


def _build_notices(base: Base, kind: RecordType, fields: FieldMap, receipt: Receipt, before: int) -> Iterator[Notice]:
    """Yield the notices of an import to a type that had `before` records.

    The hint first deletes what is stored under generated ids.
    """
    if not fields.generated_ids:
        return
    remedy = fields.key_command()
    if remedy and not receipt.dry_run:
        ids = [str(identity[0]) for identity in receipt.identities]
        is_all = fields.generated_ids == len(ids)
        removal = removal_command(base, kind, ids, before + receipt.inserted) if is_all else ""
        remedy = fields.command_after(removal, remedy)
    command = fields.command(["FIELD"], dry_run=False)
    remedy = remedy or f"before the first import: `{command}`, or FIELD,FIELD, which tell records apart"
    yield Notice("W_GENERATED_ID", describe_generated_ids(kind, fields.generated_ids), remedy)


def _refuse_options(kind: RecordType, request: ImportRequest) -> None:
    if problem := identity_option_problem(kind, request):
        raise problem
    for name, type in request.types.items():
        if type not in TYPES:
            types = {field: of for field, of in request.types.items() if field != name} | {name: "text"}
            raise UsageError(
                f"--type-of {name}: unknown type {type!r}; types: {', '.join(TYPES)}",
                suggestion=request.command(types=types),
            )
    try:
        codecs.lookup(request.encoding or "utf-8")
    except LookupError:
        raise UsageError(
            f"unknown encoding {request.encoding!r}", suggestion=request.command(encoding="cp1252")
        ) from None


def _suggest_file(type: str, path: Path) -> str:
    """Return a trial import of an existing file beside a missing path, else the list of files there.

    The file has the nearest name, or the type's.
    """
    folder = next(folder for folder in path.parents if folder.is_dir())
    files = {file.name: file for file in folder.glob("*") if file.suffix.lower() in _FORMATS}
    near = nearest(path.name, files) or min(files, key=lambda name: (files[name].stem != type, name), default="")
    file = files.get(near)
    if file is None:
        return f"ls {shell_word(str(folder))}"
    return f"duckkb import {shell_word(type)} {shell_word(str(file))} --dry-run"


class _ImportSource:
    """An open file, in the format that its name or its first bytes show."""

    def __init__(
        self, base: Base, path: str | Path, request: ImportRequest, opened: ExitStack, identity: Sequence[str]
    ) -> None:
        self._base, self._request, self.name = base, request, str(path)
        self._identity = request.id_fields or [request.renames.get(name, name) for name in identity]
        if self.name == "-":
            self._file = _copy_stdin(opened)
        elif Path(path).is_dir():
            raise _refuse_documents(base, f"{path} is a folder", path, request.type)
        else:
            try:
                file = regular_file(base, path, "a file to import")
            except UsageError as problem:
                problem.suggestion = _suggest_file(request.type, Path(path))
                raise
            self._file = opened.enter_context(file.open("rb"))
        head = self._file.read(_HEAD)
        self._file.seek(0)
        self._encoding = request.encoding or read_byte_order_mark(head) or "utf-8"
        self._form = _form(self.name, head, self._encoding)
        self.table: TextTable | None = None
        self.parquet_types: Mapping[str, str] = {}
        if request.records is not None:
            self._form = "json"
        if self._form in ("csv", "jsonl") and Path(path).suffix.lower() in _DOCUMENTS:
            raise _refuse_documents(base, f"{path} is a document", Path(path).parent, request.type, Path(path))
        if self._form == "csv":
            if b"\0" in head and not self._encoding.startswith(("utf-16", "utf-32")):
                raise UsageError(
                    f"{self.name} is not text",
                    suggestion="give CSV, TSV, JSON, JSON Lines or Parquet; of a workbook, its CSV",
                )
            self.table = TextTable(self.name, self._file, self._encoding, request, base.limits.max_record_bytes)

    def items(self, columns: ColumnTypes) -> Iterator[Item]:
        """Yield the records with their places."""
        if self.table is not None:
            for number, row in self.table.rows():
                yield (
                    f"{self.name}:{number}",
                    row if isinstance(row, LineError) else _convert_row(self.table, columns, row),
                )
        elif self._form == "parquet":
            table = ParquetTable(self.name, self._file)
            self.parquet_types = table.types
            for number, record in enumerate(table.records(), 1):
                yield f"{self.name}, record {number}", record
        else:
            numbered_items = (
                self._iter_json_items()
                if self._form == "json"
                else parse_objects(self._read_pieces(), self._base.limits)
            )
            for number, item in numbered_items:
                yield f"{self.name}:{number}", item

    def _iter_json_items(self) -> Iterator[tuple[int, Mapping[str, Any] | LineError]]:
        """Yield the values of JSON Lines or of a single document.

        It is JSON Lines where the first line is a complete object followed by others, or has a NUL byte.
        """
        if self._request.records is None and self._has_lines():
            yield from parse_objects(self._read_pieces(), self._base.limits)
            return
        try:
            text = self._file.read().decode("utf-8-sig" if self._encoding == "utf-8" else self._encoding)
        except UnicodeDecodeError:
            raise make_decoding_error(self._request, self.name, self._file, self._encoding) from None
        yield from read_document(self.name, text, self._request, self._base.limits, self._identity)

    def _has_lines(self) -> bool:
        longest = self._base.limits.max_record_bytes + 2
        lines = iter(lambda: self._file.readline(longest), b"")
        blank_or_not = (line.strip() for line in lines)
        first = next((line for line in blank_or_not if line), b"")
        more = any(blank_or_not)
        self._file.seek(0)
        if b"\0" in first and not self._request.encoding:
            return True
        try:
            return more and isinstance(parse_json(first, self._base.limits), dict)
        except LineError:
            return False

    def _read_pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the file, converted to UTF-8 from a named encoding."""
        if not self._request.encoding:
            yield from iter(lambda: self._file.read(_PIECE), b"")
            return
        text = io.TextIOWrapper(self._file, self._encoding, newline="")
        try:
            for piece in iter(lambda: text.read(_PIECE), ""):
                yield piece.encode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            text.detach()
            raise make_decoding_error(self._request, self.name, self._file, self._encoding) from None
        text.detach()


def _refuse_documents(
    base: Base, message: str, folder: str | Path, name: str = "", file: Path | None = None
) -> UsageError:
    """The error for files that are documents, with the command that makes a collection of them, or reads again the one that
    has this `name`. A `file` beside collections gets a folder of its own, as no two collections have files of each other."""
    kind = base.ontology.find(name) if name else None
    is_new = kind is None or not base.tree.count(kind)
    has_name = name and is_new and is_policy_name(name) and name != Path(folder).resolve().name
    suggestion = f"duckkb collection add {shell_word(str(folder))}" + (f" --name {name}" if has_name else "")
    around = Path(folder).resolve()
    folders = {base.root / node.source.path: node.name for node in base.ontology.nodes.values() if node.source}
    if kind is not None and kind.kind == "node" and kind.source is not None:
        suggestion = f"duckkb update {kind.name}"
    elif file is not None and (
        inner := next((name for path, name in folders.items() if around.is_relative_to(path)), "")
    ):
        suggestion = f"duckkb update {inner}"
    elif file is not None and base.root.is_relative_to(around):
        suggestion = f"mkdir -p {name} && cp {shell_word(str(file))} {name}/ && duckkb collection add {name}"
    return UsageError(
        f"{message}; a document collection has the files of a folder as records",
        code="E_PATH",
        suggestion=suggestion,
    )


def _copy_stdin(stack: ExitStack) -> IO[bytes]:
    """Copy stdin to a file that can be read several times."""
    file = stack.enter_context(SpooledTemporaryFile(8 * _PIECE))  # noqa: SIM115 (the stack closes it)
    for piece in iter(lambda: sys.stdin.buffer.read(_PIECE), b""):
        file.write(piece)
    file.seek(0)
    return file


def _form(name: str, head: bytes, encoding: str) -> str:
    """Return `jsonl`, `json`, `csv` or `parquet`, by the end of the name, else by the content's beginning."""
    if form := _FORMATS.get(Path(name).suffix.lower()):
        return form
    if head.startswith(b"PAR1"):
        return "parquet"
    text = head.decode(encoding, "replace").removeprefix("\ufeff").lstrip()
    if text.startswith(("{", "[")):
        return "json"
    return "csv" if delimiter_of(text.partition("\n")[0]) else "jsonl"


def _infer_types(kind: RecordType, request: ImportRequest, tables: Sequence[TextTable]) -> ColumnTypes:
    """Infer the types of columns over all rows of all tables. A renamed column also goes by its field's name."""
    columns = dict.fromkeys(name for table in tables for name in table.columns if name)
    source_of = {to: of for to, of in request.renames.items() if of in columns}
    target_of = {of: to for to, of in source_of.items()}
    asked_types = {source_of.get(name, name) if name not in columns else name: of for name, of in request.types.items()}
    if strange := unknown_columns(asked_types, columns):
        column_list = ", ".join(columns) or "none, as JSON and Parquet have types of their own"
        types = {name: of for name, of in request.types.items() if source_of.get(name, name) not in strange}
        raise UsageError(
            f"--type-of: no table has the column {strange[0]!r}; columns are {column_list}",
            suggestion=request.command(types=types),
        )
    schema_types = read_declared_types(kind.properties)
    fixed_types = {
        name: schema_types[field] for name in columns if (field := target_of.get(name, name)) in schema_types
    }
    column_types = ColumnTypes(fixed_types | asked_types)
    for table in tables:
        for _, cells in table.rows():
            if not isinstance(cells, LineError):
                column_types.note(table.columns, cells)
    return column_types


def _convert_row(table: TextTable, columns: ColumnTypes, cells: Sequence[str]) -> Mapping[str, Any] | LineError:
    names, values = table.record_parts(cells)
    record, wrong = columns.record(names, values)
    if wrong:
        return LineError([Finding("E_SCHEMA", message, field=f"/{name}") for name, message in wrong.items()])
    return record


def _iter_items(sources: Iterable[_ImportSource], columns: ColumnTypes, fields: FieldMap) -> Iterator[Item]:
    for source in sources:
        for place, item in source.items(columns):
            yield place, fields.shape(place, item)
    fields.refuse_unknown_sources()
