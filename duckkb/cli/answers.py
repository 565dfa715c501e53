"""Answers of `ask` for people, the pieces in which they come, and what the command ends with."""

from duckkb.actions.answering.ask import Answered, Declined
from duckkb.actions.answering.context_pack import Entry
from duckkb.cli import out, printed
from duckkb.codes import CODES
from duckkb.messages import ContentDelta, ReasoningDelta


def piece(event: ContentDelta | ReasoningDelta) -> None:
    """Print a piece of an answer as it comes; what a model thinks is not part of it."""
    if isinstance(event, ContentDelta):
        printed.result(event.text, end="")


def event(event: ContentDelta | ReasoningDelta) -> None:
    """Print a piece as an object on a line."""
    name = "content" if isinstance(event, ContentDelta) else "reasoning"
    out.emit({"event": name, "text": event.text})


def show(found: Answered | Declined, *, was_streamed: bool) -> None:
    """Print the answer with its sources and what was marked in it; or what is nearest where there is none."""
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
    """Say on stderr why a command is to fail, and give its exit code; 0 where it is not."""
    match found:
        case Declined():
            return _print_error(found.reason, "E_NO_EVIDENCE")
        case Answered() if found.cut:
            return _print_error(f"the answer stops in the middle: {found.cut}", "E_ANSWER_CUT")
        case Answered() if strict and found.unsupported:
            count = len(found.unsupported)
            return _print_error(f"{count} of {len(found.sentences)} sentences are unsupported", "E_UNSUPPORTED")
    return 0


def _print_error(message: str, code: str) -> int:
    return printed.error(message, code, CODES[code].remedy, CODES[code].exit_code)


def _format_source(entry: Entry) -> str:
    place = f"{entry.path}:{entry.line}" if entry.line else entry.path
    return f"[{entry.number}] {entry.uri} {place}"
