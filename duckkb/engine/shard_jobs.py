"""Shards of an index job: plan the shares, make one, and adopt those that other machines made.

Every machine reads the whole base and embeds its share; nothing is handed out, so nothing can be lost. A share
follows from truth, ontology and models, without what the team's cache holds, which is the same on every clone
of a commit.
The local cache is not asked, since it differs between machines.
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
from duckkb.engine.index_jobs import MOMENT, Built, Ended, JobOptions, JobWork, Listen, publish
from duckkb.engine.index_status import IndexPlan, Surveyed, TypeSurvey, list_indexed_types, plan, slabs
from duckkb.engine.text_vectors import MadeVectors, Texts, stream_unsaved
from duckkb.index import team_cache
from duckkb.index.cache_database import CacheStore, content_hash, pack_value
from duckkb.index.embedding_cache import SearchCache
from duckkb.index.team_cache import Partial, Shard, ShardFile, TeamFile
from duckkb.ontology.model import RecordType
from duckkb.storage import base_lock, git_facts, path_guard
from duckkb.store.cache_dirs import Unusable
from duckkb.types.errors import Finding, Refused, StateError, Unavailable, UsageError, shell_word
from duckkb.types.queries import Notice

To = Literal["local", "team"]


class ShardShare(Struct, frozen=True):
    """The share of one machine: its different texts with a vector, those to embed, and an estimate of their
    tokens.
    """

    shard: str
    texts: int
    missing: int
    tokens: int


class ShardPlan(Struct, frozen=True):
    """All shares under one digest. `whole` has the totals by type."""

    digest: str
    shares: tuple[ShardShare, ...]
    whole: IndexPlan


class ShardBuilt(Struct, frozen=True):
    """The result of making one share: its file, the texts in it, those an earlier run made (`kept`), and this
    run's job.

    The file exists where `built.pending` is 0.
    """

    shard: str
    plan: str
    file: str
    texts: int
    kept: int
    built: Built


class Adopted(Struct, frozen=True):
    """The result of adopting shards: the shards, their texts, the texts that still lack a vector, and the files
    written.

    With `partial`, it also has what is wrong with the other shards.
    """

    plan: str
    shards: tuple[str, ...]
    texts: int
    pending: int
    files: tuple[str, ...]
    problems: tuple[Finding, ...] = ()
    notices: tuple[Notice, ...] = ()


class _Looked(Struct):
    """The result of one walk through the base: the keys of all vectors, and the wanted texts by type and key."""

    keys: bytearray = field(default_factory=bytearray)
    texts: dict[str, dict[bytes, str]] = field(default_factory=lambda: defaultdict(dict))
    surveys: list[TypeSurvey] = []

    @property
    def wanted(self) -> int:
        return sum(map(len, self.texts.values()))


def shard_plan(base: Base, count: int, *, everything: bool = False) -> ShardPlan:
    """Return the share of each of `count` shards; with `everything` also texts that the team's cache holds.

    Spends nothing.
    """
    left_out = _collect_excluded_keys(base, everything)
    scan = _scan_base(base, lambda key: key not in left_out)
    for type_survey in scan.surveys:
        for key, text in scan.texts[type_survey.kind.name].items():
            type_survey.note(key, text)
    whole = plan(base, Surveyed(scan.surveys, "current" if not scan.wanted else "stale", {}))
    digest, texts = team_cache.plan_digest(bytes(scan.keys), count)
    _, missing = team_cache.plan_digest(b"".join(key for some in scan.texts.values() for key in some), count)
    each = whole.tokens / whole.missing if whole.missing else 0.0
    shares = (
        ShardShare(f"{at}/{count}", text_count, lacking, round(lacking * each))
        for at, (text_count, lacking) in enumerate(zip(texts, missing, strict=True), 1)
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
    """Make one share and write it into the folder `out`, all or nothing; what an earlier run made of it is kept.

    Nothing else is written, neither in the base nor in the caches. Of the `options`, budgets and `wait` count.
    Raises `errors.Unavailable` (E_LOCKED) while another process makes the same share, `errors.UsageError`
    (E_PATH, or for a file that would be too large), `errors.Refused` (E_SPARSE).
    """
    _refuse(base)
    target = path_guard.writable(out, base.root, base.wiring.env)
    left_out = _collect_excluded_keys(base, everything)
    scan = _scan_base(base, lambda key: shard.has(key) and key not in left_out)
    file = ShardFile(target, shard, team_cache.plan_digest(bytes(scan.keys), shard.of)[0])
    models = {kind.name: model for kind in base.ontology if (model := base.fingerprint(kind)) is not None}
    team_cache.refuse_too_large(shard.of, scan.wanted, max((model.dimension for model in models.values()), default=0))
    model_names = {key: str(models[kind]) for kind, some in scan.texts.items() for key in some}
    with team_cache.open_partial_shard(file, model_names, math.inf if options.wait else MOMENT) as partial:
        if file.has(model_names):
            return _report_shard(
                file, len(model_names), len(model_names), Built(files=(str(file.path),), total=len(model_names))
            )
        kept_count = len(partial.rows)
        work = _ShardWork(base, options, listen, scan.texts, partial)
        for kind in list_indexed_types(base):
            if scan.texts.get(kind.name) and work.code != "E_BUDGET":
                work.embed(kind, models[kind.name])
        pending = len(model_names) - len(partial.rows)
        if not pending:
            file.write(partial.rows.values())
        result = Built(
            files=() if pending else (str(file.path),),
            pending=pending,
            embedded=work.done,
            tokens=work.tokens,
            changed=len(model_names) - kept_count,
            total=len(model_names),
            code=work.code if pending else "",
            reason=work.reason if pending else "",
        )
    listen(Ended(result))
    return _report_shard(file, len(model_names), kept_count, result)


def adopt(base: Base, folder: Path, *, to: To = "local", partial: bool = False) -> Adopted:
    """Adopt the shards of a folder: for this base on this machine, or also written as the team's cache.

    A sample of each shard is recomputed before any is trusted. All are taken, or with `partial` the sound ones,
    or none: raises `errors.StateError` (E_SHARD) with every fault, each shard by its name.
    """
    _refuse(base)
    shard_files, scan = _list_shards(folder), _scan_base(base, lambda key: True)
    with closing(_ShardCheck(base, folder, scan, shard_files)) as check:
        sound = check.sound()
        if check.problems and not (partial and sound):
            raise _build_refusal(check.problems, folder)
        keys = {key for shard_file in sound for key in check.keys(shard_file)}
        try:
            base.cache.adopt([check.number(shard_file) for shard_file in sound])
        except Unusable as problem:
            raise _build_write_error(str(problem)) from problem
    if base.cache.list_missing_keys("vector", keys):
        raise _build_write_error("it keeps nothing")
    written_files: tuple[str, ...] = ()
    notices = check.notices
    if to == "team":
        with base_lock.job(base.root, MOMENT):
            boot.refresh(base)
            written_files, team_notices = publish(base)
            notices += team_notices
    pending = sum(len(base.cache.list_missing_keys("vector", some)) for some in scan.texts.values())
    names = tuple(str(shard_file.shard) for shard_file in sound)
    return Adopted(check.plan, names, len(keys), pending, written_files, tuple(check.problems), notices)


def _refuse(base: Base) -> None:
    boot.refuse_past(base)
    git_facts.refuse_sparse_paths(base.root)
    if base.wiring.place.sealed is not None:
        raise Refused(
            "a key is set, and shards would be unencrypted in their folder",
            suggestion="`duckkb index build` embeds into the sealed cache",
        )


def _collect_excluded_keys(base: Base, everything: bool) -> Collection[bytes]:
    base.cache.look_again()
    return frozenset() if everything else base.cache.team_keys()


def _scan_base(base: Base, wants: Callable[[bytes], bool]) -> _Looked:
    """Walk through all records; a text that several types share counts for the first."""
    scan, claimed_keys = _Looked(), set[bytes]()
    for kind in list_indexed_types(base):
        if base.fingerprint(kind) is None:
            continue
        type_survey, text_keys, type_texts = TypeSurvey(kind), set[bytes](), scan.texts[kind.name]
        for records in slabs(base, kind):
            needs = base.builder.needs(kind, records)
            type_survey.entries += needs.entries
            new = needs.vectors.keys() - text_keys
            text_keys |= new
            scan.keys += b"".join(new)
            type_texts.update((key, needs.vectors[key]) for key in new - claimed_keys if wants(key))
        claimed_keys |= type_texts.keys()
        type_survey.texts = len(text_keys)
        scan.surveys.append(type_survey)
    return scan


def _report_shard(file: ShardFile, texts: int, kept_count: int, result: Built) -> ShardBuilt:
    return ShardBuilt(str(file.shard), file.plan, str(file.path), texts, kept_count, result)


class _ShardWork(JobWork):
    """The work of a job on the texts of one share; its vectors go into the partial file of the share."""

    def __init__(
        self, base: Base, options: JobOptions, listen: Listen, texts: Mapping[str, Texts], partial: Partial
    ) -> None:
        super().__init__(base, options, listen, None, sum(map(len, texts.values())) - len(partial.rows))
        self.texts, self.partial = texts, partial

    def _stream_vectors(self, kind: RecordType) -> Iterator[MadeVectors]:
        for key in self.partial.rows.keys() & self.texts[kind.name].keys():
            length = len(self.partial.rows[key][3]) // 4
            self.base.cache.dimensions.expect(self.base.embedder(kind).fingerprint, length)
            break
        return stream_unsaved(self.base, kind, self._batches(kind))

    def _iter_missing_texts(self, kind: RecordType, size: int) -> Iterator[Texts]:
        texts = self.texts[kind.name]
        missing_keys = sorted(texts.keys() - self.partial.rows.keys())
        return ({key: texts[key] for key in missing_keys[at : at + size]} for at in range(0, len(missing_keys), size))

    def _keep(self, kind: RecordType, batch: MadeVectors) -> None:
        model = self.base.embedder(kind).fingerprint
        rows = [
            (key, content_hash(batch.texts[key]), str(model), pack_value("vector", vector))
            for key, vector in batch.vectors.items()
        ]
        self.partial.add(rows)
        self.base.cache.dimensions.expect(model, len(rows[0][3]) // 4)


class _ShardCheck:
    """A check of the shards in a folder against the base that they are for; `plan` is the expected digest."""

    def __init__(self, base: Base, folder: Path, looked: _Looked, found: Sequence[ShardFile]) -> None:
        self._base, self._folder, keys = base, folder, bytes(looked.keys)
        plans = {
            of: team_cache.plan_digest(keys, of)[0] for of in sorted({shard_file.shard.of for shard_file in found})
        }
        fitting = Counter(shard_file.shard.of for shard_file in found if shard_file.plan == plans[shard_file.shard.of])
        self._of = max(plans, key=lambda of: fitting[of])
        self.plan = plans[self._of]
        self._own = [
            shard_file for shard_file in found if shard_file.shard.of == self._of and shard_file.plan == self.plan
        ]
        self._others = [shard_file for shard_file in found if shard_file not in self._own]
        self._planned: dict[int, dict[bytes, tuple[RecordType, str]]] = defaultdict(dict)
        for kind in list_indexed_types(base):
            for key, text in looked.texts[kind.name].items():
                self._planned[team_cache.number_of(key, self._of)][key] = kind, text
        store = CacheStore(base.wiring.place.shared, limit=base.wiring.env.cache_limit)
        self._cache = SearchCache(
            folder, store, lambda _: [TeamFile(folder, shard_file.name) for shard_file in self._own]
        )
        self.problems: list[Finding] = []
        self.notices: tuple[Notice, ...] = ()

    def close(self) -> None:
        self._cache.close()

    def sound(self) -> list[ShardFile]:
        """Return the shards that may be adopted; `problems` collects the faults of the others and the missing
        ones.
        """
        whole = [shard_file for shard_file in self._own if self._is_whole(shard_file)]
        by_kind: dict[str, dict[bytes, str]] = defaultdict(dict)
        for shard_file in whole:
            for key in self.keys(shard_file):
                kind, text = self._planned[shard_file.shard.number][key]
                by_kind[kind.name][key] = text
        for kind in list_indexed_types(self._base):
            self._cache.verify_vectors(by_kind[kind.name], self._base.embedder(kind).embed_passages)
        sound = [shard_file for shard_file in whole if self._is_honest(shard_file)]
        there = {shard_file.shard.number for shard_file in self._own}
        for number in range(1, self._of + 1):
            if number not in there:
                self._report_missing_shard(Shard(self._of, number))
        if self._others and len(there) == self._of:
            names = ", ".join(shard_file.name for shard_file in self._others)
            self.notices = (Notice("W_SHARD", f"not adopted, since they are not of plan {self.plan}: {names}"),)
        return sound

    def number(self, one: ShardFile) -> int:
        """Return the number of the shard in the store."""
        return self._cache.team_numbers()[TeamFile(self._folder, one.name)]

    def keys(self, one: ShardFile) -> set[bytes]:
        """Return the keys of the vectors that the shard has."""
        return self._cache.keys_of(TeamFile(self._folder, one.name))

    def _is_whole(self, shard_file: ShardFile) -> bool:
        """Check that every row can be read, and that the shard has one row for each of its texts and no other.

        Texts that the caches have may be missing.
        """
        is_read = TeamFile(self._folder, shard_file.name) in self._cache.team_numbers()
        faults = [finding.message for finding in self._cache.findings if finding.path == shard_file.name]
        if is_read:
            planned_keys, present_keys = self._planned[shard_file.shard.number].keys(), self.keys(shard_file)
            if present_keys - planned_keys:
                faults.append(f"{len(present_keys - planned_keys):,} rows are of texts that the shard does not have")
            if lacking := self._base.cache.list_missing_keys("vector", planned_keys - present_keys):
                faults.append(f"{len(lacking):,} of its texts have no row, and no cache here has a vector of them")
        if faults:
            self._report_fault(shard_file, "; ".join(faults))
        return not faults

    def _is_honest(self, shard_file: ShardFile) -> bool:
        """Check that the sample agreed, and that each row names the model and the text from which its key is made."""
        if TeamFile(self._folder, shard_file.name) not in self._cache.team_numbers():
            self._report_fault(shard_file, "its rows differ from recomputed ones")
            return False
        planned_texts = self._planned[shard_file.shard.number]
        wrong = 0
        for key, content, model, _ in self._cache.rows("vector", self.keys(shard_file)):
            kind, text = planned_texts[key]
            wrong += (model, content) != (str(self._base.fingerprint(kind)), content_hash(text))
        if wrong:
            self._report_fault(shard_file, f"{wrong:,} rows name another model or text than their keys")
        return not wrong

    def _report_missing_shard(self, shard: Shard) -> None:
        again = f"duckkb index build --shard {shard} --out {shell_word(str(self._folder))}"
        for shard_file in self._others:
            if shard_file.shard == shard:
                message = f"shard {shard} is for another commit, ontology or model: its plan is {shard_file.plan}, that of this base {self.plan}"
                self.problems.append(Finding("E_SHARD", message, shard_file.name, remedy=again))
                return
        message = f"shard {shard} is missing"
        if ShardFile(self._folder, shard, self.plan).partial.exists():
            message = f"shard {shard} is not whole yet"
        self.problems.append(Finding("E_SHARD", message, remedy=again))

    def _report_fault(self, shard_file: ShardFile, message: str) -> None:
        remedy = f"find out why, remove it, then `duckkb index build --shard {shard_file.shard} --out {shell_word(str(self._folder))}`"
        self.problems.append(Finding("E_SHARD", f"shard {shard_file.shard}: {message}", shard_file.name, remedy=remedy))


def _list_shards(folder: Path) -> list[ShardFile]:
    try:
        shard_files = team_cache.shard_files(folder)
    except OSError as error:
        message = f"{folder} cannot be read: {error.strerror}"
        raise UsageError(message, code="E_PATH", suggestion="give the folder of the shards", exit_code=1) from error
    if not shard_files:
        message = f"no shard in {folder}"
        raise StateError(message, code="E_SHARD", suggestion="duckkb index build --shard 1/4 --out DIR makes one")
    return shard_files


def _build_refusal(problems: Sequence[Finding], folder: Path) -> StateError:
    message = f"the shards in {folder} do not fit; nothing was taken in"
    return StateError(
        message,
        code="E_SHARD",
        suggestion="correct the shards named, or adopt the others with --partial",
        findings=problems,
    )


def _build_write_error(why: str) -> Unavailable:
    message = f"the search cache cannot store shards: {why}"
    return Unavailable(message, code="E_IO", suggestion="free space, or set DUCKKB_CACHE_HOME to a folder of your own")
