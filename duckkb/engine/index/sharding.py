"""Shards of an index job: which texts each has, one of them made, and those that others made taken in.

Every machine reads the whole base and embeds its share: nothing is handed out, so nothing can be lost on the way. A share follows from
truth, ontology and models alone; of it, what the team's cache holds is left out, which is the same on every clone of a commit. The
cache of a machine is not asked, as each has another.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from duckkb.engine import boot
from duckkb.engine.base import Base
from duckkb.engine.index.jobs import MOMENT, Built, Ended, JobOptions, JobWork, Listen, publish
from duckkb.engine.index.notes import indexed, slabs
from duckkb.engine.index.plan import IndexPlan, Surveyed, TypeSurvey, plan
from duckkb.engine.vectors import MadeVectors, Texts, unsaved
from duckkb.errors import Finding, Refused, StateError, Unavailable, UsageError, shell_word
from duckkb.indexing import shards as files
from duckkb.indexing.cache import SearchCache
from duckkb.indexing.cache_rows import content_hash, packed
from duckkb.indexing.cache_store import CacheStore
from duckkb.indexing.shards import Partial, Shard, ShardFile
from duckkb.indexing.team_files import TeamFile
from duckkb.ontology.model import RecordType
from duckkb.queries import Notice
from duckkb.store.place import Unusable
from duckkb.truth.commit import lock, outside
from duckkb.truth.git import absent

To = Literal["local", "team"]


class ShardShare(Struct, frozen=True):
    """One share: the different texts with a vector, those of them that are to be embedded, and about how many tokens these are."""

    shard: str
    texts: int
    missing: int
    tokens: int


class ShardPlan(Struct, frozen=True):
    """All shares under one digest. `whole` says what they come to, by type."""

    digest: str
    shares: tuple[ShardShare, ...]
    whole: IndexPlan


class ShardBuilt(Struct, frozen=True):
    """What came of one share: its file, the texts that are in it or are to be, those that an earlier run had made (`kept`), and
    what this run did. A file is there where `built.pending` is 0."""

    shard: str
    plan: str
    file: str
    texts: int
    kept: int
    built: Built


class Adopted(Struct, frozen=True):
    """The shards that were taken in, the texts in them, the texts of the base that still lack a vector, the files that were
    written, and with `partial` what is wrong with the others."""

    plan: str
    shards: tuple[str, ...]
    texts: int
    pending: int
    files: tuple[str, ...]
    problems: tuple[Finding, ...] = ()
    notices: tuple[Notice, ...] = ()


class _Looked(Struct):
    """One walk through the base: the keys of all vectors, and the texts that were asked for, by type and key."""

    keys: bytearray = field(default_factory=bytearray)
    texts: dict[str, dict[bytes, str]] = field(default_factory=lambda: defaultdict(dict))
    surveys: list[TypeSurvey] = []

    @property
    def wanted(self) -> int:
        return sum(map(len, self.texts.values()))


def shard_plan(base: Base, count: int, *, everything: bool = False) -> ShardPlan:
    """What each of so many shards has; with `everything` also what the team's cache holds. Spends nothing."""
    left_out = _left_out(base, everything)
    looked = _look(base, lambda key: key not in left_out)
    for one in looked.surveys:
        for key, text in looked.texts[one.kind.name].items():
            one.note(key, text)
    whole = plan(base, Surveyed(looked.surveys, "current" if not looked.wanted else "stale", {}))
    digest, texts = files.plan_digest(bytes(looked.keys), count)
    _, missing = files.plan_digest(b"".join(key for some in looked.texts.values() for key in some), count)
    each = whole.tokens / whole.missing if whole.missing else 0.0
    shares = (
        ShardShare(f"{at}/{count}", own, lacking, round(lacking * each))
        for at, (own, lacking) in enumerate(zip(texts, missing, strict=True), 1)
    )
    return ShardPlan(digest, tuple(shares), whole)


_DEFAULTS = JobOptions()


def build_shard(
    base: Base,
    shard: Shard,
    out: Path,
    *,
    everything: bool = False,
    options: JobOptions = _DEFAULTS,
    listen: Listen = lambda _: None,
) -> ShardBuilt:
    """Make one share and write it into the folder `out`, all or nothing; what an earlier run had made of it is kept. Nothing else is
    written, neither in the base nor in the caches. Of the `options`, budgets and `wait` count. Raises `errors.Unavailable` (E_LOCKED) while another process makes it,
    `errors.UsageError` (E_PATH, or for a file that would be too large), `errors.Refused` (E_SPARSE)."""
    _refuse(base)
    target = outside.writable(out, base.root, base.wiring.env)
    left_out = _left_out(base, everything)
    looked = _look(base, lambda key: shard.has(key) and key not in left_out)
    file = ShardFile(target, shard, files.plan_digest(bytes(looked.keys), shard.of)[0])
    models = {kind.name: model for kind in base.ontology if (model := base.fingerprint(kind)) is not None}
    files.refuse_too_large(shard.of, looked.wanted, max((model.dimension for model in models.values()), default=0))
    named = {key: str(models[kind]) for kind, some in looked.texts.items() for key in some}
    with files.begun(file, named, math.inf if options.wait else MOMENT) as partial:
        if file.has(named):
            return _built(file, len(named), len(named), Built(files=(str(file.path),), total=len(named)))
        kept = len(partial.rows)
        work = _ShardWork(base, options, listen, looked.texts, partial)
        for kind in indexed(base):
            if looked.texts.get(kind.name) and work.code != "E_BUDGET":
                work.embed(kind, models[kind.name])
        pending = len(named) - len(partial.rows)
        if not pending:
            file.write(partial.rows.values())
        done = Built(
            files=() if pending else (str(file.path),),
            pending=pending,
            embedded=work.done,
            tokens=work.tokens,
            changed=len(named) - kept,
            total=len(named),
            code=work.code if pending else "",
            reason=work.reason if pending else "",
        )
    listen(Ended(done))
    return _built(file, len(named), kept, done)


def adopt(base: Base, folder: Path, *, to: To = "local", partial: bool = False) -> Adopted:
    """Take in the shards that lie in a folder: for this base on this machine, or written as the team's cache, too. A sample of each is
    recomputed before any is believed. All of them are taken, or with `partial` those that are sound, or none: raises
    `errors.StateError` (E_SHARD) with everything that is wrong, each shard by its name."""
    _refuse(base)
    found, looked = _listed(folder), _look(base, lambda key: True)
    with closing(_ShardCheck(base, folder, looked, found)) as check:
        sound = check.sound()
        if check.problems and not (partial and sound):
            raise _refused(check.problems, folder)
        keys = {key for one in sound for key in check.keys(one)}
        try:
            base.cache.adopt([check.number(one) for one in sound])
        except Unusable as problem:
            raise _unwritable(str(problem)) from problem
    if base.cache.lacking("vector", keys):
        raise _unwritable("it keeps nothing")
    written: tuple[str, ...] = ()
    notices = check.notices
    if to == "team":
        with lock.job(base.root, MOMENT):
            boot.refresh(base)
            written, said = publish(base)
            notices += said
    pending = sum(len(base.cache.lacking("vector", some)) for some in looked.texts.values())
    names = tuple(str(one.shard) for one in sound)
    return Adopted(check.plan, names, len(keys), pending, written, tuple(check.problems), notices)


def _refuse(base: Base) -> None:
    boot.refuse_past(base)
    absent.refuse_missing(base.root)
    if base.wiring.place.sealed is not None:
        raise Refused(
            "a key is set, and shards would lie in their folder in the clear",
            suggestion="`duckkb index build` embeds into the sealed cache",
        )


def _left_out(base: Base, everything: bool) -> Collection[bytes]:
    base.cache.look_again()
    return frozenset() if everything else base.cache.team_keys()


def _look(base: Base, wants: Callable[[bytes], bool]) -> _Looked:
    """Walk through all records; a text that several types share counts for the first."""
    looked, told = _Looked(), set[bytes]()
    for kind in indexed(base):
        if base.fingerprint(kind) is None:
            continue
        one, seen, own = TypeSurvey(kind), set[bytes](), looked.texts[kind.name]
        for records in slabs(base, kind):
            needs = base.builder.needs(kind, records)
            one.entries += needs.entries
            new = needs.vectors.keys() - seen
            seen |= new
            looked.keys += b"".join(new)
            own.update((key, needs.vectors[key]) for key in new - told if wants(key))
        told |= own.keys()
        one.texts = len(seen)
        looked.surveys.append(one)
    return looked


def _built(file: ShardFile, texts: int, kept: int, done: Built) -> ShardBuilt:
    return ShardBuilt(str(file.shard), file.plan, str(file.path), texts, kept, done)


class _ShardWork(JobWork):
    """As any job's work, on the texts of one share; what is made goes into its partial file."""

    def __init__(
        self, base: Base, options: JobOptions, listen: Listen, texts: Mapping[str, Texts], partial: Partial
    ) -> None:
        super().__init__(base, options, listen, None, sum(map(len, texts.values())) - len(partial.rows))
        self.texts, self.partial = texts, partial

    def _made(self, kind: RecordType) -> Iterator[MadeVectors]:
        for key in self.partial.rows.keys() & self.texts[kind.name].keys():
            length = len(self.partial.rows[key][3]) // 4
            self.base.cache.dimensions.expect(self.base.embedder(kind).fingerprint, length)
            break
        return unsaved(self.base, kind, self._batches(kind))

    def _lacking(self, kind: RecordType, size: int) -> Iterator[Texts]:
        own = self.texts[kind.name]
        left = sorted(own.keys() - self.partial.rows.keys())
        return ({key: own[key] for key in left[at : at + size]} for at in range(0, len(left), size))

    def _keep(self, kind: RecordType, made: MadeVectors) -> None:
        model = self.base.embedder(kind).fingerprint
        rows = [
            (key, content_hash(made.texts[key]), str(model), packed("vector", vector))
            for key, vector in made.vectors.items()
        ]
        self.partial.add(rows)
        self.base.cache.dimensions.expect(model, len(rows[0][3]) // 4)


class _ShardCheck:
    """What is wrong with the shards of a folder, by the base that they are for. `plan` is the digest that they are held against."""

    def __init__(self, base: Base, folder: Path, looked: _Looked, found: Sequence[ShardFile]) -> None:
        self._base, self._folder, keys = base, folder, bytes(looked.keys)
        plans = {of: files.plan_digest(keys, of)[0] for of in sorted({one.shard.of for one in found})}
        fitting = Counter(one.shard.of for one in found if one.plan == plans[one.shard.of])
        self._of = max(plans, key=lambda of: fitting[of])
        self.plan = plans[self._of]
        self._own = [one for one in found if one.shard.of == self._of and one.plan == self.plan]
        self._others = [one for one in found if one not in self._own]
        self._planned: dict[int, dict[bytes, tuple[RecordType, str]]] = defaultdict(dict)
        for kind in indexed(base):
            for key, text in looked.texts[kind.name].items():
                self._planned[files.number_of(key, self._of)][key] = kind, text
        store = CacheStore(base.wiring.place.shared, limit=base.wiring.env.cache_limit)
        self._cache = SearchCache(folder, store, lambda _: [TeamFile(folder, one.name) for one in self._own])
        self.problems: list[Finding] = []
        self.notices: tuple[Notice, ...] = ()

    def close(self) -> None:
        self._cache.close()

    def sound(self) -> list[ShardFile]:
        """The shards that may be taken in; `problems` has what is wrong with the others and what is not there."""
        whole = [one for one in self._own if self._is_whole(one)]
        by_kind: dict[str, dict[bytes, str]] = defaultdict(dict)
        for one in whole:
            for key in self.keys(one):
                kind, text = self._planned[one.shard.number][key]
                by_kind[kind.name][key] = text
        for kind in indexed(self._base):
            self._cache.verify_vectors(by_kind[kind.name], self._base.embedder(kind).embed_passages)
        sound = [one for one in whole if self._is_honest(one)]
        there = {one.shard.number for one in self._own}
        for number in range(1, self._of + 1):
            if number not in there:
                self._miss(Shard(self._of, number))
        if self._others and len(there) == self._of:
            names = ", ".join(one.name for one in self._others)
            self.notices = (Notice("W_SHARD", f"left where they are, as they are not of plan {self.plan}: {names}"),)
        return sound

    def number(self, one: ShardFile) -> int:
        """Its number in the store."""
        return self._cache.team_numbers()[TeamFile(self._folder, one.name)]

    def keys(self, one: ShardFile) -> set[bytes]:
        """The keys of the vectors that it has."""
        return self._cache.keys_of(TeamFile(self._folder, one.name))

    def _is_whole(self, one: ShardFile) -> bool:
        """Whether it can be read, every row, and has one for each of its texts, but for those that the caches have, and no other."""
        is_read = TeamFile(self._folder, one.name) in self._cache.team_numbers()
        said = [finding.message for finding in self._cache.findings if finding.path == one.name]
        if is_read:
            planned, held = self._planned[one.shard.number].keys(), self.keys(one)
            if held - planned:
                said.append(f"{len(held - planned):,} rows are of texts that the shard does not have")
            if lacking := self._base.cache.lacking("vector", planned - held):
                said.append(f"{len(lacking):,} of its texts have no row, and no cache here has a vector of them")
        if said:
            self._wrong(one, "; ".join(said))
        return not said

    def _is_honest(self, one: ShardFile) -> bool:
        """Whether its sample agreed, and each row names the model and the text that its key is made of."""
        if TeamFile(self._folder, one.name) not in self._cache.team_numbers():
            self._wrong(one, "rows of it did not agree with what was recomputed")
            return False
        planned = self._planned[one.shard.number]
        wrong = 0
        for key, content, model, _ in self._cache.rows("vector", self.keys(one)):
            kind, text = planned[key]
            wrong += (model, content) != (str(self._base.fingerprint(kind)), content_hash(text))
        if wrong:
            self._wrong(one, f"{wrong:,} rows name another model or text than their keys")
        return not wrong

    def _miss(self, shard: Shard) -> None:
        again = f"duckkb index build --shard {shard} --out {shell_word(str(self._folder))}"
        for one in self._others:
            if one.shard == shard:
                said = f"shard {shard} is for another commit, ontology or model: its plan is {one.plan}, that of this base {self.plan}"
                self.problems.append(Finding("E_SHARD", said, one.name, remedy=again))
                return
        said = f"shard {shard} is missing"
        if ShardFile(self._folder, shard, self.plan).partial.exists():
            said = f"shard {shard} is not whole yet"
        self.problems.append(Finding("E_SHARD", said, remedy=again))

    def _wrong(self, one: ShardFile, said: str) -> None:
        remedy = f"find out why, remove it, then `duckkb index build --shard {one.shard} --out {shell_word(str(self._folder))}`"
        self.problems.append(Finding("E_SHARD", f"shard {one.shard}: {said}", one.name, remedy=remedy))


def _listed(folder: Path) -> list[ShardFile]:
    try:
        found = files.shard_files(folder)
    except OSError as error:
        said = f"{folder} cannot be read: {error.strerror}"
        raise UsageError(
            said, code="E_PATH", suggestion="give the folder that the shards lie in", exit_code=1
        ) from error
    if not found:
        said = f"there is no shard in {folder}"
        raise StateError(said, code="E_SHARD", suggestion="duckkb index build --shard 1/4 --out DIR makes one")
    return found


def _refused(problems: Sequence[Finding], folder: Path) -> StateError:
    said = f"the shards in {folder} do not fit; nothing was taken in"
    return StateError(
        said, code="E_SHARD", suggestion="mend what is named, or take the others with --partial", findings=problems
    )


def _unwritable(why: str) -> Unavailable:
    said = f"the search cache takes no shards: {why}"
    return Unavailable(said, code="E_IO", suggestion="free space, or set DUCKKB_CACHE_HOME to a folder of your own")
