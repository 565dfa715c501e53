"""Prompts: one to answer from a base with citations, and one to review a change of it."""

from collections.abc import Mapping

import mcp_types as types
from mcp.shared.exceptions import MCPError
from msgspec import Struct


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
