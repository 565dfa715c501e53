"""Resources: types as JSON Schema, and records and documents by the URI that cites them; and the greeting.

The greeting is made from the types too.

Prompts: one to answer from a base with citations, and one to review a change of it.

Subscriptions to resources: a subscriber is told when it would read something else than before.

The text that a subscriber would read as its present caller is compared after each write of this server, and
every few seconds, as files change without it. So nobody is told of what it may not read, and no code needs to
know which change touches which resource."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from time import monotonic
from typing import Any
from urllib.parse import quote, unquote

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from msgspec import Struct
from msgspec.structs import replace

from duckkb.review import history
from duckkb.server.authentication import Denial
from duckkb.server.dispatcher import Answerer, Asked, Front
from duckkb.server.server_log import report_unexpected
from duckkb.types.errors import DuckkbError, NotFound, UsageError
from duckkb.types.request_context import Caller

MISSING = ("E_NOT_FOUND", "E_UNKNOWN_TYPE")
"""Codes of errors for a URI that names nothing."""
_SCHEMA = "duckkb:schema"
_JSON, _TEXT = "application/json", "text/plain"
_MOST_TYPES, _LONGEST, _MOST_COMPLETED = 40, 200, 100
_MOST_REMEMBERED, _LONGEST_KEY = 900, 60
TEMPLATES = (
    types.ResourceTemplate(
        name="record",
        uri_template="duckkb://{type}/{identity}",
        description="The current version of a record. Both parts are percent-encoded; an identity of several parts is a "
        "JSON array.",
        mime_type=_JSON,
    ),
    types.ResourceTemplate(
        name="record at a commit",
        uri_template="duckkb://{type}/{identity}@{commit}",
        description="A record at a commit, as a citation names it.",
        mime_type=_JSON,
    ),
    types.ResourceTemplate(
        name="document",
        uri_template="duckkb://{collection}/{+path}",
        description="The text of a document: the `file` of a hit of `query` and `search`.",
        mime_type=_TEXT,
    ),
    types.ResourceTemplate(
        name="schema",
        uri_template=_SCHEMA + "/{type}",
        description="The JSON Schema of the records of a type.",
        mime_type=_JSON,
    ),
)


def offer_resources(served: Answerer, caller: Caller) -> list[types.Resource]:
    """List the types, and the schema of each. Records are named by citations, since there may be millions."""
    every = types.Resource(name="types", uri=_SCHEMA, description="All types and collections.", mime_type=_JSON)
    return [every, *(_describe_schema(record_type["name"]) for record_type in served.run("types", {}, caller)["types"])]


def _describe_schema(name: str) -> types.Resource:
    uri = f"{_SCHEMA}/{quote(name, safe='')}"
    return types.Resource(name=f"schema of {name}", uri=uri, description=f"The fields of {name}.", mime_type=_JSON)


def read(served: Answerer, uri: str, caller: Caller) -> types.TextResourceContents:
    """Read what a URI names. Raises `errors.NotFound`, `errors.UsageError` and what the base raises."""
    if uri == _SCHEMA:
        return _build_contents(uri, served.run("types", {}, caller))
    if uri.startswith(f"{_SCHEMA}/"):
        return _build_contents(uri, served.run("schema", {"type": unquote(uri.removeprefix(f"{_SCHEMA}/"))}, caller))
    reference = _parse_citation(uri)
    if reference is None or reference.commit is None:
        text = _read_document(served, uri, caller)
        if text is not None:
            return types.TextResourceContents(uri=uri, mime_type=_TEXT, text=text)
    reference = reference or history.parse(uri)
    arguments = {"citation": str(reference)}
    if reference.at is None:
        return _build_contents(uri, served.run("get", arguments, caller))
    with served.open_revision(reference.at, caller) as kb:
        return _build_contents(uri, kb.run("get", arguments, caller))


def read_current_text(served: Answerer, uri: str, caller: Caller) -> str:
    """Read the text that a URI without a commit names.

    Raises as `read` does, and `errors.UsageError` for a URI with a commit.
    """
    reference = _parse_citation(uri)
    if reference is not None and reference.commit is not None:
        raise UsageError("a record at a commit does not change", suggestion=str(replace(reference, commit=None)))
    return read(served, uri, caller).text


def complete_argument(served: Answerer, argument: str, begun: str, caller: Caller) -> types.Completion:
    """Complete an argument of a prompt, or of a URI: names of types and collections; nothing for others."""
    every = served.run("types", {}, caller)["types"] if argument in ("type", "collection") else []
    kinds = ("node",) if argument == "collection" else ("node", "edge")
    names = [record_type["name"] for record_type in every if record_type["kind"] in kinds]
    matches = [name for name in names if name.casefold().startswith(begun.casefold())]
    return types.Completion(
        values=matches[:_MOST_COMPLETED], total=len(matches), has_more=len(matches) > _MOST_COMPLETED
    )


def _parse_citation(uri: str) -> history.Citation | None:
    with suppress(UsageError):
        return history.parse(uri)
    return None


def _read_document(answerer: Answerer, uri: str, caller: Caller) -> str | None:
    """Return the text of a document; None where the URI names none that the caller may see."""
    with suppress(NotFound, UsageError):
        text: str = answerer.run("get", {"document": uri}, caller)["text"]
        return text
    return None


def _build_contents(uri: str, value: Any) -> types.TextResourceContents:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
    return types.TextResourceContents(uri=uri, mime_type=_JSON, text=text)


def instructions(served: Answerer, caller: Caller) -> str:
    """Return one paragraph on the content and how to ask it; where the base does not load, the reason."""
    try:
        name, record_types = served.name, served.run("types", {}, caller)["types"]
        descriptions = [_describe_type(served, record_type, caller) for record_type in record_types[:_MOST_TYPES]]
        memories = _describe_memories(served.run("memory_stats", {}, caller)["scopes"])
    except DuckkbError as problem:
        message = f"The knowledge base does not load now ({problem.code}: {problem.message.splitlines()[0]})"
        return f"{message}; until then calls return the reason." if caller.types is None else _UNAVAILABLE
    except Exception as problem:
        report_unexpected("mcp instructions", problem)
        return _UNAVAILABLE
    more = (
        f" and {len(record_types) - _MOST_TYPES} more (`types` lists them)" if len(record_types) > _MOST_TYPES else ""
    )
    return (
        f"duckkb serves the knowledge base {name}: records as JSON lines in git, of these types: "
        f"{'; '.join(descriptions) or 'none yet'}{more}. Search a type, or `all`, with `find`, document collections "
        "with `query`; read what you rely on with `get`; walk links with `neighbors`; count with `sql`. `schema` "
        "says which fields a type has. Cite what you use as duckkb://TYPE/IDENTITY, or by the `file` of a document. "
        "An answer with `degraded` or `notices` is incomplete: say so. Before a write look with `dry_run`; an "
        f"answer with a `branch` means that the change waits there for review and is not in the base yet.{memories}"
    )


def _describe_memories(scopes: list[dict[str, Any]]) -> str:
    """Describe the number of memories in each scope, with the newest keys; at most about a thousand characters."""
    text = ""
    for scope in scopes:
        keys = ", ".join(" ".join(newest["key"].split())[:_LONGEST_KEY] for newest in scope["newest"])
        line = f" {scope['scope']}: {scope['memories']}{f', the newest {keys}' if keys else ''}."
        if len(text) + len(line) > _MOST_REMEMBERED:
            text += " `memory_stats` lists the others."
            break
        text += line
    return f" Memories (`memory_search`, `memory_put`), by scope:{text}" if text else ""


_UNAVAILABLE = "The knowledge base cannot be asked now; try again in a moment."


def _describe_type(answerer: Answerer, record_type: dict[str, Any], caller: Caller) -> str:
    about = answerer.run("schema", {"type": record_type["name"]}, caller).get("description")
    ends = (
        f" from {'|'.join(record_type['from'])} to {'|'.join(record_type['to'])}"
        if record_type["kind"] == "edge"
        else ""
    )
    description = f" ({' '.join(about.split())[:_LONGEST]})" if isinstance(about, str) and about.strip() else ""
    return f"{record_type['name']}{f' [edge{ends}]' if ends else ''}{description}"


class _Prompt(Struct, frozen=True):
    offered: types.Prompt
    text: str


def _prompt(name: str, description: str, text: str, *arguments: types.PromptArgument) -> _Prompt:
    return _Prompt(types.Prompt(name=name, description=description, arguments=list(arguments)), text)


_ALL = (
    _prompt(
        "ask",
        "Answer a question from the knowledge base, and cite every statement.",
        """\
Answer this question from the knowledge base alone: {question}

1. Search with `find` (type: {type}) and, where there are document collections, with `query`; ask again in other words where \
little comes back, and follow links with `neighbors`.
2. Read what you rely on whole, with `get`; a hit is a piece of a record.
3. Behind each statement name its source as a citation: duckkb://TYPE/IDENTITY, percent-encoded, or the `file` of a document.
4. Where records contradict each other, say so and cite both. Where nothing supports an answer, say that the knowledge base \
has none: do not fill in from elsewhere.
""",
        types.PromptArgument(name="question", description="The question.", required=True),
        types.PromptArgument(name="type", description="A type or collection to search. Default: all."),
    ),
    _prompt(
        "review",
        "Review a change of the knowledge base: its records and its findings.",
        """\
Review a change of this knowledge base: {range}.

1. Read it with `diff` ({argument}), page by page until no `next` is left.
2. For each record that changed, look at the old and the new values; `get` and `find` show what stands beside it: is it a \
duplicate, does it contradict another record, does it lose something that others refer to?
3. `check` says what breaks a rule.
4. Report findings by severity, each with the record (TYPE:IDENTITY), the field, what is wrong and what would mend it; then \
say whether you would accept the change. Change nothing.
""",
        types.PromptArgument(
            name="range", description="BASE, BASE..HEAD or BASE...HEAD. Default: uncommitted changes."
        ),
    ),
)
_BY_NAME = {one.offered.name: one for one in _ALL}
_OF_ALL_TOOLS = frozenset({"review"})
"""Prompts that name tools beyond the common ones."""


def offer_prompts(*, all_tools: bool = True) -> list[types.Prompt]:
    """List the prompts whose tools are listed."""
    return [prompt.offered for prompt in _ALL if all_tools or prompt.offered.name not in _OF_ALL_TOOLS]


def make_prompt(name: str, given: Mapping[str, str]) -> types.GetPromptResult:
    """Return a prompt with its arguments.

    Raises `MCPError` for an unknown name or argument, or a missing argument.
    """
    prompt = _BY_NAME.get(name)
    if prompt is None:
        raise MCPError(types.INVALID_PARAMS, f"unknown prompt; prompts: {', '.join(_BY_NAME)}")
    known_arguments = {argument.name: argument for argument in prompt.offered.arguments or ()}
    if given.keys() - known_arguments.keys():
        raise MCPError(types.INVALID_PARAMS, f"{name} takes {', '.join(known_arguments)} alone")
    for argument in known_arguments.values():
        if argument.required and not given.get(argument.name):
            raise MCPError(types.INVALID_PARAMS, f"{name} needs the argument {argument.name}")
    range_text = given.get("range")
    values = {
        "question": given.get("question", ""),
        "type": given.get("type") or "all",
        "range": range_text or "what is not committed yet",
        "argument": f"range: {range_text}" if range_text else "no range",
    }
    text = prompt.text.format(**values)
    message = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.GetPromptResult(description=prompt.offered.description, messages=[message])


MOST_OF_SESSION, _MOST = 100, 1_000
_PAUSE_S, _LEAST_S, _SHARE = 2.0, 0.05, 10
"""Seconds between two checks for changes.

The pause after a write is at least `_LEAST_S`, and at least `_SHARE` times the duration of the last check.
"""
_SEND_S = 1.0
"""Seconds within which a client must take a notification; one that does not gets no more."""
_GONE = "gone"

_Key = tuple[int, str]


class Subscription(Struct):
    """A subscription of a connection to a resource: the subscriber, and the digest of the last text."""

    connection: Connection
    uri: str
    asked: Asked
    digest: str


class Subscriptions:
    """The subscriptions of one tenant, or of the user at the other end of a pipe; for use in one event loop."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._held: dict[_Key, Subscription] = {}
        self._begun = anyio.Event()
        self._thread = anyio.CapacityLimiter(1)

    def __len__(self) -> int:
        return len(self._held)

    def add(self, connection: Connection, uri: str, asked: Asked, text: str) -> None:
        """Notify the connection when the resource is no longer this text. Raises MCPError beyond the limits."""
        key, subscription_count = (
            (id(connection), uri),
            sum(1 for connection_id, _ in self._held if connection_id == id(connection)),
        )
        if key not in self._held and (subscription_count >= MOST_OF_SESSION or len(self._held) >= _MOST):
            message = (
                f"a session has at most {MOST_OF_SESSION} subscriptions, a tenant {_MOST:,}; unsubscribe from others"
            )
            raise MCPError(types.INVALID_REQUEST, message)
        if not subscription_count:
            connection.exit_stack.callback(self.forget, connection)
        self._held[key] = Subscription(connection, uri, asked, _digest(text))
        self._begun.set()

    def remove(self, connection: Connection, uri: str) -> None:
        """Remove a subscription; do nothing where there is none."""
        self._held.pop((id(connection), uri), None)

    def forget(self, connection: Connection) -> None:
        """Remove all subscriptions of a connection."""
        for key in [key for key in self._held if key[0] == id(connection)]:
            del self._held[key]

    async def watch(self) -> None:
        """Look for changes, and notify subscribers, until cancelled."""
        while True:
            if not self._held:
                self._begun = anyio.Event()
                await self._begun.wait()
            write_event, began = self._front.written, monotonic()
            subscriptions = [*self._held.values()]
            digests = await anyio.to_thread.run_sync(
                self._compute_digests, subscriptions, abandon_on_cancel=True, limiter=self._thread
            )
            for subscription, digest in zip(subscriptions, digests, strict=True):
                await self._tell(subscription, digest)
            await anyio.sleep(max(_LEAST_S, _SHARE * (monotonic() - began)))
            with anyio.move_on_after(_PAUSE_S):
                await write_event.wait()

    async def _tell(self, subscription: Subscription, digest: str | None) -> None:
        key = (id(subscription.connection), subscription.uri)
        if self._held.get(key) is not subscription or digest == subscription.digest:
            return
        if digest is None:
            del self._held[key]
            return
        subscription.digest = digest
        with anyio.move_on_after(_SEND_S) as sending:
            await subscription.connection.send_resource_updated(subscription.uri)
        if sending.cancelled_caught:
            self.forget(subscription.connection)

    def _compute_digests(self, subscriptions: list[Subscription]) -> list[str | None]:
        """Return the digests of what subscribers would read; None for one who is no longer let in."""
        callers: dict[int, Caller | Denial] = {}
        digests: dict[tuple[Caller, str], str] = {}
        results: list[str | None] = []
        for subscription in subscriptions:
            call = subscription.asked
            caller = callers.setdefault(id(call), call.caller_now()) if id(call) not in callers else callers[id(call)]
            if isinstance(caller, Denial):
                results.append(subscription.digest if caller.status == 503 else None)
                continue
            key = (caller, subscription.uri)
            if key not in digests:
                digests[key] = self._read(subscription, caller)
            results.append(digests[key])
        return results

    def _read(self, subscription: Subscription, caller: Caller) -> str:
        try:
            return _digest(read_current_text(self._front.served, subscription.uri, caller))
        except DuckkbError as problem:  # an unreadable resource may be unchanged
            return _GONE if problem.code in MISSING else subscription.digest
        except Exception as problem:
            report_unexpected("mcp resources/subscribe", problem)
            return subscription.digest


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()


def lifespan_of(front: Front) -> Any:
    """Return the lifespan of a tenant's server, during which its subscriptions are watched.

    Handlers find them in their context.
    """

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[Subscriptions]:
        async with anyio.create_task_group() as group:
            subscriptions = Subscriptions(front)
            group.start_soon(subscriptions.watch)
            yield subscriptions
            group.cancel_scope.cancel()

    return lifespan
