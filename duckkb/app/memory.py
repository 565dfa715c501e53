"""`kb.memory`: the actions on memories as methods."""

from typing import TYPE_CHECKING

from duckkb.app.use_cases import Deferred, asks, changes

if TYPE_CHECKING:
    from duckkb.actions.memory import memories
    from duckkb.app.knowledge import KnowledgeBase
else:
    memories = Deferred("actions.memory.memories")


class Memory:
    """The memories of agents, by scope and key: put, search, look back, count."""

    def __init__(self, kb: "KnowledgeBase") -> None:
        self._now, self._answer = kb._now, kb._answer

    put = changes(memories.put)
    search = asks(memories.search)
    history = asks(memories.history)
    stats = asks(memories.stats)
    mark_accessed = asks(memories.mark_accessed)
