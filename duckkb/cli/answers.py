"""Printing of `ask`: answers for people, the pieces of a stream, and exit codes."""

from duckkb.actions.answering.ask import Answered, Declined
from duckkb.actions.answering.context_pack import Entry
from duckkb.cli import out, printed
from duckkb.codes import CODES
from duckkb.messages import ContentDelta, ReasoningDelta


def piece(event: ContentDelta | ReasoningDelta) -> None:
    """Print a piece of an answer as it comes; a model's reasoning is not printed."""
    if isinstance(event, ContentDelta):
        printed.result(event.text, end="")


def event(event: ContentDelta | ReasoningDelta) -> None:
    """Print a piece as a JSON object on a line."""
    name = "content" if isinstance(event, ContentDelta) else "reasoning"
    out.emit({"event": name, "text": event.text})


def show(found: Answered | Declined, *, was_streamed: bool) -> None:
    """Print the answer with its sources and marks, or the nearest records where there is no answer."""
    if isinstance(found, Declined):
        lines = ["Nearest:", *map(_format_source, found.nearest)] if found.nearest else []
    else:
        lines = [] if was_streamed else [found.text.strip()]
        if found.cited:
            lines += ["", "Sources:", *map(_format_source, found.cited)]
        if found.unsupported:
            lines += ["", "Unsupported:"]
        for claim in found.unsupported:
            lines += [f"- {' '.join(claim.sentence.text.split())}", f"  {'; '.join(map(str, claim.marks))}"]
    if was_streamed and found.model:
        printed.result("")
    for line in lines:
        printed.result(line)


def failure(found: Answered | Declined, *, strict: bool) -> int:
    """Print on stderr why the command fails, and return its exit code; 0 where it does not fail."""
    match found:
        case Declined():
            return _print_error(found.reason, "E_NO_EVIDENCE")
        case Answered() if found.cut:
            return _print_error(f"the answer is incomplete: {found.cut}", "E_ANSWER_CUT")
        case Answered() if strict and found.unsupported:
            count = len(found.unsupported)
            return _print_error(f"{count} of {len(found.sentences)} sentences are unsupported", "E_UNSUPPORTED")
    return 0


def _print_error(message: str, code: str) -> int:
    return printed.error(message, code, CODES[code].remedy, CODES[code].exit_code)


def _format_source(entry: Entry) -> str:
    place = f"{entry.path}:{entry.line}" if entry.line else entry.path
    return f"[{entry.number}] {entry.uri} {place}"
