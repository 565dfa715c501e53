"""`propose`: a base whose writes become a commit on a branch of their own."""

from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex

from duckkb import config
from duckkb.actions.folder import OpenOptions
from duckkb.engine.base import Proposal
from duckkb.errors import NotFound, Refused
from duckkb.review import propose
from duckkb.truth import state
from duckkb.truth.git import branch as branches
from duckkb.truth.git import repository, revisions
from duckkb.truth.git.branch import Branch
from duckkb.truth.git.revisions import Revision
from duckkb.values import dataclass, field


@dataclass(frozen=True, slots=True)
class Wish:
    """What to propose: on which `branch` (made up where None), from which revision (`base`; where None the branch's own tip if
    it goes beyond HEAD, else HEAD), with which message. `goes_on`: the branch is there, and whoever made it may have
    something added to it; without it that is so only for what this clone has proposed."""

    title: str
    branch: str | None = None
    base: str | None = None
    message: str = ""
    goes_on: bool = False


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
    """A base as of a revision whose writes are kept as commits on a branch. Open it by `opening` to write;
    `proposed` then says where."""

    def __init__(self, root: Path, wish: Wish) -> None:
        self._root, self._wish = root, wish
        verb, _, what = wish.title.partition(" ")
        name = wish.branch if wish.branch is not None else propose.branch_name(verb, what, token_hex(3))
        self._target: Branch = branches.branch(self._root, name)
        self._remote = propose.remote(self._root)
        self._writer = config.around(self._root).writer or state.clone_id(self._root)
        self._parent: Revision = self._start()
        self.proposed = Proposed(name, self._parent.commit)

    def opening(self, *, lenient: bool = False) -> OpenOptions:
        """How the base to write to is opened."""
        return OpenOptions(lenient, at=self._parent.commit, proposal=Proposal(self._target.name, self._keep))

    def _start(self) -> Revision:
        """What the first commit is made of."""
        name, base = self._target.name, self._wish.base
        pushed = branches.pushed(self._root, self._remote.name, name) if self._remote else None
        held = self._target.tip or pushed
        if held is not None:
            self._refuse_anothers(held)
        elif self._wish.goes_on:
            raise NotFound(f"there is no branch {name} to continue", suggestion="leave --continue out, and it is made")
        start = revisions.revision(self._root, base or "HEAD")
        if held and not base and not branches.contains(self._root, start, held):
            start = held
        self._refuse_to_lose(start, (self._target.tip, pushed))
        return start

    def _refuse_anothers(self, held: Revision) -> None:
        name = self._target.name
        if not self._wish.goes_on and not branches.is_made_by(self._root, self._writer, name, held):
            raise Refused(
                f"there is a branch {name} ({held.name}, {held.short}) whose last commit was not proposed from here",
                suggestion=f"propose on another branch, or add to it: duckkb propose --continue --branch {name} ...",
            )

    def _refuse_to_lose(self, start: Revision, held: tuple[Revision | None, ...]) -> None:
        """No commit that the branch has, here or where it is pushed to, is left behind."""
        for tip in held:
            if tip is not None and not branches.contains(self._root, start, tip):
                mend = "leave --base out" if self._wish.base else f"git branch -f {self._target.name} {tip.name}"
                raise Refused(
                    f"{tip.name} has commits that {start.name} does not have, which would be left behind",
                    suggestion=f"{mend}, or propose on another branch",
                )

    def _keep(self, files: Mapping[str, bytes | None]) -> None:
        message = self._wish.message or f"{self._wish.title}\n\nProposed by duckkb propose.\n"
        commit = branches.commit(self._root, self._target, self._parent, files, message, self._writer)
        self._parent = revisions.revision(self._root, commit)
        self._target = Branch(self._target.name, self._parent)
        opening = propose.opening(self._remote, self._target.name, repository.branch(self._root))
        self.proposed.commit, self.proposed.files = commit, tuple(sorted(files))
        self.proposed.push, self.proposed.url = opening.push, opening.url
