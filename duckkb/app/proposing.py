"""`propose`: a base whose writes become a commit on a branch of their own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from duckkb.app.knowledge import KnowledgeBase
from duckkb.app.wiring import Choice, find
from duckkb.engine.base import Proposal
from duckkb.review import propose
from duckkb.truth import branch as branches
from duckkb.truth import history, revisions
from duckkb.truth.branch import Branch
from duckkb.truth.revisions import Revision
from duckkb.values import dataclass, field


@dataclass(frozen=True, slots=True)
class Wish:
    """What to propose: on which `branch` (made up where None), from which revision (`base`; where None the branch's own tip if
    it goes beyond HEAD, else HEAD), with which message."""

    title: str
    branch: str | None = None
    base: str | None = None
    message: str = ""


@dataclass
class Proposed:
    """A proposal on its way: `commit` is empty until there was something to propose."""

    branch: str
    base: str
    commit: str = ""
    push: str = ""
    url: str = ""
    files: tuple[str, ...] = field(default_factory=tuple)


class Proposing:
    """A base as of a revision whose writes are kept as commits on a branch. Use `kb` to write; `proposed` then says where."""

    def __init__(self, path: "str | Path | None", wish: Wish) -> None:
        self._root, self._wish = find(path), wish
        verb, _, what = wish.title.partition(" ")
        name = wish.branch if wish.branch is not None else propose.branch_name(verb, what, token_hex(3))
        self._target: Branch = branches.branch(self._root, name)
        self._parent: Revision = self._start()
        self.proposed = Proposed(name, self._parent.commit)

    @contextmanager
    def opened(self, *, lenient: bool = False) -> Iterator[KnowledgeBase]:
        """The base to write to."""
        chosen = Choice(lenient, at=self._parent.commit, proposal=Proposal(self._target.name, self._keep))
        with KnowledgeBase(self._root, chosen) as kb:
            yield kb

    def _start(self) -> Revision:
        if self._wish.base is not None:
            return revisions.revision(self._root, self._wish.base)
        head = revisions.revision(self._root, "HEAD")
        tip = self._target.tip
        return tip if tip is not None and not branches.contains(self._root, head, tip) else head

    def _keep(self, files: Mapping[str, bytes | None]) -> None:
        message = self._wish.message or f"{self._wish.title}\n\nProposed by duckkb propose.\n"
        commit = branches.commit(self._root, self._target, self._parent, files, message)
        self._parent = revisions.revision(self._root, commit)
        self._target = Branch(self._target.name, self._parent)
        opening = propose.opening(propose.remote(self._root), self._target.name, history.branch(self._root))
        self.proposed.commit, self.proposed.files = commit, tuple(sorted(files))
        self.proposed.push, self.proposed.url = opening.push, opening.url
