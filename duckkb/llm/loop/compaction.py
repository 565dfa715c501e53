"""The view of a conversation that is sent: the whole, or older rounds in a shorter form.

The conversation stays unchanged.
"""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from duckkb.llm.loop.event_loop import EventLoop
from duckkb.messages import Message


class Compaction(Struct, frozen=True):
    """The rule by which older rounds are shortened.

    A round is an answer of the model with the results of its calls. Rounds before the last `keep_rounds` are
    sent as what `compress` makes of them, together with its earlier output.
    """

    keep_rounds: int
    compress: Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]


class Compacted:
    """A growing conversation in the form in which it is sent.

    The messages before the first round always stay, and so do the system's and the user's among the first
    `given` messages.
    """

    def __init__(self, chosen: Compaction | None, given: int, event_loop: EventLoop) -> None:
        self._chosen, self._given, self._event_loop = chosen, given, event_loop
        self._upto, self._shorter = 0, tuple[Message, ...]()

    def view(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return the messages to send now.

        Where `compress` fails, or gives calls without their results, the previous form is sent.
        """
        if self._chosen is None:
            return tuple(messages)
        starts = [at for at, message in enumerate(messages) if message.role == "assistant"]
        round_count = max(1, self._chosen.keep_rounds)
        if len(starts) > round_count and (cut := starts[-round_count]) > self._upto:
            first = starts[0]
            older = [
                message
                for at, message in enumerate(messages[:cut])
                if at >= max(first, self._upto) and not self._should_keep(at, message)
            ]
            try:
                shorter = tuple(self._event_loop.settle(self._chosen.compress((*self._shorter, *older))))
                if _is_whole(shorter):
                    self._upto, self._shorter = cut, shorter
            except Exception:  # any error: the conversation is then sent unshortened
                pass
        first = starts[0] if starts else len(messages)
        kept_messages = [
            message for at, message in enumerate(messages[: self._upto]) if at < first or self._should_keep(at, message)
        ]
        return (*kept_messages, *self._shorter, *messages[self._upto :])

    def _should_keep(self, at: int, message: Message) -> bool:
        return at < self._given and message.role in ("system", "user")


def _is_whole(messages: Sequence[Message]) -> bool:
    """Return whether all are messages, each call stands before its result, and each result behind its call."""
    open_calls: set[str] = set()
    for message in messages:
        if not isinstance(message, Message) or (open_calls and message.role != "tool"):
            return False
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                return False
            open_calls.discard(message.tool_call_id)
        open_calls |= {call.id for call in message.tool_calls}
    return not open_calls
