"""What of a conversation is sent: the whole, or older rounds in a shorter form. The conversation itself stays as it is."""

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from duckkb.llm.loop.event_loop import EventLoop
from duckkb.messages import Message


class Compaction(Struct, frozen=True):
    """Beyond the last `keep_rounds` rounds (an answer of the model with the results of its calls), rounds are sent as what `compress`
    makes of them, together with what it made before."""

    keep_rounds: int
    compress: Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]


class Compacted:
    """A growing conversation as it is sent. What stands before the first round, and the system's and the user's messages of the first
    `given` ones, always stay."""

    def __init__(self, chosen: Compaction | None, given: int, event_loop: EventLoop) -> None:
        self._chosen, self._given, self._event_loop = chosen, given, event_loop
        self._upto, self._shorter = 0, tuple[Message, ...]()

    def view(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """What is sent now. Where `compress` fails, or gives calls without their results, as it was before."""
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
            except Exception:  # whatever it is: a conversation that is not shortened is still one
                pass
        first = starts[0] if starts else len(messages)
        kept_messages = [
            message for at, message in enumerate(messages[: self._upto]) if at < first or self._should_keep(at, message)
        ]
        return (*kept_messages, *self._shorter, *messages[self._upto :])

    def _should_keep(self, at: int, message: Message) -> bool:
        return at < self._given and message.role in ("system", "user")


def _is_whole(messages: Sequence[Message]) -> bool:
    """Whether they are messages in which each call stands before its result, and each result behind its call."""
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
