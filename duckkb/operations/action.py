"""Actions: what may be asked of a base from outside, with inputs and outputs as JSON Schema.

An action's annotations and defaults say what a parameter may be. `parameters` says what it means, once for all
actions that have it.

The meaning and the limits of action parameters: each name once, since it means the same everywhere."""

import inspect
import types
import typing
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from duckkb.types.request_context import Caller, Role

if TYPE_CHECKING:
    from duckkb.engine.base import Base

NOT_OFFERED = frozenset({"fusion", "expansion"})
"""Parameters of the Python API only, since their values belong to the ontology."""

DESCRIBED: Mapping[str, str] = {
    "after": "Continue after this: the `next` of the previous page.",
    "answers": (
        "Choices: for each conflict its `type`, `identity`, `field` and `etag`, and one of `choose` (ours, theirs, "
        "base, newest), `value`, `record`, and `delete` (true)."
    ),
    "at": "Read the base at a commit, branch or tag.",
    "arch_hints": "Show code near the results in the code graph: in `hints`, or on stderr.",
    "branch": "A branch: all changes that HEAD lacks.",
    "budget": "Approximate limit in bytes; omitted records are counted, and `next` continues.",
    "candidates": "Maximum number of documents that a reranker reads.",
    "cascade": "Also delete the edges of a node.",
    "collections": "Only documents of these collections.",
    "depth": "Maximum number of edges away.",
    "direction": "Direction in which edges are followed.",
    "citation": "A citation, resolved at its commit: duckkb://TYPE/IDENTITY@COMMIT#FIELD/SEQ, as in `pack` and `ask`.",
    "document": "A document: its path in a collection (guide/install.md, guide/install.md:40), duckkb:// URI, or docid (#3fa9c1).",
    "dry_run": "Write nothing; show what would change.",
    "embed": "Whether to make vectors now, or in a later search or `index build`.",
    "end": "End of the path: [type, identity].",
    "evaluate": "Number of further commits to evaluate, the newest first: each answers all questions.",
    "explain": "Explain each score and rank.",
    "field": "Only this field, or a path below it: names.fr, tags[0].",
    "fields": "Only these fields (meta.source for a nested one) and the record's name; +_chunk adds a field to the "
    "default ones.",
    "first": "For a document: start at this line of its file.",
    "form": "Format of the texts: one Markdown or plain text, or (json) one entry each.",
    "full": "Whole texts instead of matching lines.",
    "intent": "With `searches`: the purpose of the question; it is not searched for.",
    "identities": "The identities of the records, each in the form of `identity`.",
    "identity": "The identity of a record: a text, a number, or a list of its parts (an edge: [from, to]).",
    "if_match": "Only if the record is still at this version: its `_etag`.",
    "ignore": "Fields to ignore: records that differ only in these are left out.",
    "k": "Number of results of a question that count.",
    "key": "The key of the memory, unique in its scope: deploy-steps, preference/editor.",
    "keys": "The keys of memories.",
    "label": "Only edges of this type, or of these.",
    "limit": "At most this many results.",
    "links": "Its subjects: citations (duckkb://TYPE/IDENTITY) or addresses.",
    "lines": "For a document: at most this many lines.",
    "graph": "The type of the graph's nodes.",
    "merge": "Change only the fields given, each as a whole; otherwise the record is replaced.",
    "min_score": "Only documents with at least this score (0 to 1).",
    "mode": "How to search: by meaning (similar), words (match), both (hybrid), or the filter alone (where). "
    "Default: the type's policy.",
    "model": "The chat model that answers, by its name in the configuration.",
    "most": "Skip files with more bytes.",
    "new": "The new identity of the record.",
    "old": "The current identity of the record.",
    "only": "Only these types or records: TYPE or TYPE:IDENTITY.",
    "ops": "Only these kinds of change, and no findings.",
    "pattern": "A glob over paths of documents (runbooks/**/*.md), or paths and docids separated by commas.",
    "provenance": "Show the commit of each record's line, and its citation.",
    "query": "The question, in words.",
    "question": "The question, in words.",
    "records": "One record as an object of its fields, or a list of them. An edge has `from` and `to`.",
    "range": "The versions to compare: BASE with the current files, BASE..HEAD, or BASE...HEAD.",
    "rerank_timeout_ms": "Time limit of a reranker, in milliseconds.",
    "searches": "Instead of the question: searches answered together, each in its lane.",
    "scope": "The owner of the memories: a tenant, or a scope below one (ann, ann/work). Default: the root scope.",
    "since": "Check only a change: the files since the merge base with a revision, or a range BASE..HEAD or BASE...HEAD.",
    "source": "The source: a conversation, a file, a person.",
    "stage": "Give parts without open conflicts to git's index.",
    "start": "Start of the path: [type, identity].",
    "statement": "One read-only SELECT. Tables: one per node type and edge label, search_index, search_cache.",
    "tags": "Tags of the memory.",
    "text": "The text to remember, at most 20,000 characters.",
    "timeout": "Time limit, in seconds.",
    "type": "A type or collection, by its name, table or label.",
    "types": "Only records and documents of these types and collections.",
    "vector": "The question as a vector; with a query too, the search is hybrid.",
    "where": "Only records that match this condition, applied before ranking: topic = 'storage' AND year > 2019.",
    "allow_shrink": "Allow deleting more records of a table than `limits` in config.yaml: max(20, 10 %).",
}
_DIFFERENT: Mapping[tuple[str, str], str] = {
    ("find", "type"): "A type or collection, by its name, table or label; `all` searches every one.",
    ("list", "after"): "Start after the record with this identity: the `next` of the previous page.",
    ("branches", "after"): "Start after this branch: the `next` of the previous page.",
    ("branches", "branch"): "Only this branch.",
    ("conflicts", "after"): "Start after the conflict with this name: the `next` of the previous page.",
    ("diff", "after"): "Continue where an answer ended: the `after` of its `next`.",
    ("query", "question"): (
        "The question, in words. Give several lines to ask each lane separately: `lex:` words that must all occur, "
        "`vec:` a question, `hyde:` a possible answer, `intent:` the purpose of the question."
    ),
    ("ask", "budget"): "Approximate limit of evidence for the model, in tokens. Default: from the configuration.",
    ("ask", "limit"): "At most this many records and documents as evidence.",
    ("pack", "budget"): "Approximate limit in tokens, including the text around the entries.",
    ("pack", "neighbors"): "Add the records one edge away from the results.",
    **{(name, "limit"): "Maximum number of commits, spread over the whole history." for name in ("growth", "quality")},
    ("search", "question"): 'Words: "a phrase", -not, prefix*.',
}

FORM: Mapping[str, Mapping[str, Any]] = {
    "at": {"type": "string", "minLength": 1},
    "fields": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "full": {"type": "boolean", "default": False},
    "provenance": {"type": "boolean", "default": False},
}
"""The schemas of parameters that functions do not take: they choose what of the answer is returned, or the base."""

LONGEST_QUESTION = 20_000
"""The most characters of a question, and of a memory. All of it is embedded, which takes a model some seconds."""

SEARCH: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "type": {
            "type": "string",
            "enum": ["lex", "vec", "hyde"],
            "description": "lex: words that must all occur; vec: a question; hyde: a possible answer.",
        },
        "query": {"type": "string", "maxLength": LONGEST_QUESTION, "description": "The text to search for."},
    },
    "required": ["type", "query"],
    "additionalProperties": False,
}
LIMITS: Mapping[str, Mapping[str, Any]] = {
    "budget": {"minimum": 2_000, "maximum": 100_000_000},
    "candidates": {"minimum": 0},
    "depth": {"minimum": 1, "maximum": 1_000},
    "document": {"maxLength": 4_096},
    "evaluate": {"minimum": 0, "maximum": 1_000},
    "first": {"minimum": 1},
    "k": {"minimum": 1, "maximum": 1_000},
    "limit": {"minimum": 1, "maximum": 1_000_000_000},
    "lines": {"minimum": 1},
    "min_score": {"minimum": 0},
    "most": {"minimum": 1},
    "pattern": {"maxLength": 20_000},
    "query": {"maxLength": LONGEST_QUESTION},
    "question": {"maxLength": LONGEST_QUESTION},
    "rerank_timeout_ms": {"minimum": 1},
    "searches": {"items": SEARCH},
    "timeout": {"exclusiveMinimum": 0, "maximum": 3_600},
}
TIMES: Mapping[str, float] = {"timeout": 1, "rerank_timeout_ms": 1_000}
"""Parameters that are times, with their units per second; no call may take longer than its deadline."""
_DIFFERENT_LIMITS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("ask", "budget"): {"minimum": 1, "maximum": 1_000_000},
    **{(name, "limit"): {"minimum": 2, "maximum": 1_000_000_000} for name in ("growth", "quality")},
    ("pack", "budget"): {"minimum": 1, "maximum": 1_000_000},
}


def describe_parameter(action: str, name: str) -> str:
    """Return the meaning of a parameter of an action; raises KeyError where it is not documented."""
    return _DIFFERENT.get((action, name)) or DESCRIBED[name]


def limits(action: str, name: str) -> Mapping[str, Any]:
    """Return the limits of an action's parameter beyond its type."""
    if name == "searches":
        from duckkb.engine.typed_questions import MOST_QUESTIONS  # imports the parser of questions

        return {**LIMITS[name], "maxItems": MOST_QUESTIONS}
    return _DIFFERENT_LIMITS.get((action, name)) or LIMITS.get(name, {})


_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
_STAND_INS = {"np": types.SimpleNamespace(ndarray=Sequence[float])}
"""Replacements for names in annotations that only type checkers import."""
_WHOLE = {"at": " For callers who may see the whole base."}

Schema = Mapping[str, Any]


class Action(Struct, frozen=True):
    """An action: a function that callers may run, with its rights, its schemas and its presentation.

    It names the function (`operations.record_search:find`), the lowest role, and whether it writes (an action that
    `repeats` may be repeated without further effect). `description` is for people, and for models that choose
    among actions.

    `shape` is the JSON Schema of the plain object that the function `answer` of `dispatch` makes of the result,
    or its name (`response_types:FOUND`); `rows` is the part of it that is printed a line each. `section` is that of
    `duckkb --help` for a command made of the action alone. `privileged` parameters are for admins only.
    `prepare` is a function that is called first with the whole base, the caller and the arguments, and returns
    whether it changed the configuration (`operations.memories:make_scope`).

    `form` parameters do not go to the function: they choose what of the answer is returned, and `at` the commit
    that is asked. A `lenient` action answers even while records cannot be read. An action that `needs_whole` is
    hidden from callers who see a part, and refused to them.
    """

    name: str
    source: str
    description: str
    shape: str | Schema
    answer: str = "as_is"
    role: Role = "viewer"
    writes: bool = False
    repeats: bool = True
    privileged: frozenset[str] = frozenset()
    form: tuple[str, ...] = ()
    lenient: bool = False
    needs_whole: bool = False
    prepare: str = ""
    rows: str = ""
    section: str = ""

    def is_for(self, caller: Caller) -> bool:
        """Return whether a caller can ever use the action."""
        return caller.may(self.role) and (caller.types is None or not self.needs_whole)

    @property
    def summary(self) -> str:
        """The first sentence of the description."""
        return first_sentence(self.description)

    @property
    def output(self) -> Schema:
        """The JSON Schema of its answer as a plain object."""
        schema: Schema = _import_source(f"operations.{self.shape}") if isinstance(self.shape, str) else self.shape
        return schema

    @property
    def function(self) -> Callable[..., Any]:
        """The function of the action: it takes a base, then the parameters."""
        plain: Callable[..., Any] = inspect.unwrap(_import_source(self.source))
        return plain

    @property
    def positional(self) -> tuple[str, ...]:
        """The names of the parameters that a command takes without an option, in their order."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        return tuple(parameter.name for parameter in self._list_parameters() if parameter.kind in kinds)

    def run_preparation(self, base: "Base", caller: Caller, given: Mapping[str, Any]) -> bool:
        """Make what the action needs; return whether the base has to be opened again."""
        return bool(self.prepare) and bool(_import_source(self.prepare)(base, caller, **given))

    @property
    def input(self) -> dict[str, Any]:
        """The JSON Schema (2020-12) of its parameters; others are refused."""
        arguments = list(self._list_parameters())
        hints = _resolve_hints(self.function, {argument.name for argument in arguments})
        properties = {argument.name: self._build_rule(argument, hints[argument.name]) for argument in arguments}
        form = {name: dict(FORM[name]) for name in self.form}
        properties |= {
            name: rule | {"description": describe_parameter(self.name, name) + _WHOLE.get(name, "")}
            for name, rule in form.items()
        }
        required_names = [argument.name for argument in arguments if argument.default is argument.empty]
        return {"type": "object", "properties": properties, "required": required_names, "additionalProperties": False}

    def object_of(self, base: "Base", value: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of the function for these arguments as a plain object."""
        answer: dict[str, Any] = _import_source(f"operations.dispatch:{self.answer}")(base, value, given)
        return answer

    def call(self, base: "Base", given: Mapping[str, Any]) -> Any:
        """Call the function with arguments that fit `input`."""
        given = {name: value for name, value in given.items() if name not in self.form}
        names = list(self._list_parameters())
        many = next((argument for argument in names if argument.kind is argument.VAR_POSITIONAL), None)
        if many is None:
            return self.function(base, **given)
        first = [argument.name for argument in names[: names.index(many)]]
        keywords = {name: value for name, value in given.items() if name not in (*first, many.name)}
        return self.function(base, *(given[name] for name in first), *given[many.name], **keywords)

    def _list_parameters(self) -> Iterator[inspect.Parameter]:
        arguments = list(inspect.signature(self.function).parameters.values())[1:]
        return (argument for argument in arguments if argument.name not in NOT_OFFERED)

    def _build_rule(self, argument: inspect.Parameter, hint: Any) -> dict[str, Any]:
        rule = schema_of(hint)
        if argument.kind is argument.VAR_POSITIONAL:
            rule = {"type": "array", "items": rule, "minItems": 1}
        rule |= limits(self.name, argument.name)
        if argument.default not in (argument.empty, None):
            rule["default"] = list(argument.default) if isinstance(argument.default, tuple) else argument.default
        admin = " Admins only." if argument.name in self.privileged else ""
        return rule | {"description": describe_parameter(self.name, argument.name) + admin}


def first_sentence(text: str) -> str:
    """Return the first sentence of a text on one line, with a full stop."""
    return text.partition(". ")[0].removesuffix(".") + "."


def _import_source(source: str) -> Any:
    module, _, name = source.partition(":")
    return getattr(import_module(f"duckkb.{module}"), name)


def schema_of(hint: Any) -> dict[str, Any]:
    """Return the JSON Schema of an annotation. Raises TypeError for a type without a form in JSON."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin is Literal:
        return {"type": "string", "enum": [*inner]}
    if origin in (typing.Union, types.UnionType):
        schemas = [schema_of(item) for item in inner if item is not type(None)]
        different = [item for at, item in enumerate(schemas) if item not in schemas[:at]]
        return different[0] if len(different) == 1 else {"anyOf": different}
    if origin is tuple and inner[-1:] != (...,):
        items = [schema_of(item) for item in inner]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object"}
    if isinstance(origin, type) and issubclass(origin, Sequence | frozenset):
        return {"type": "array", "items": schema_of(inner[0])}
    raise TypeError(f"no JSON Schema for {hint}")


def _resolve_hints(function: Callable[..., Any], names: Container[str]) -> dict[str, Any]:
    """Resolve the annotations of these parameters only; others may name what is not imported."""
    annotations = {name: hint for name, hint in function.__annotations__.items() if name in names}
    return typing.get_type_hints(
        types.SimpleNamespace(__annotations__=annotations), {**function.__globals__, **_STAND_INS}
    )
