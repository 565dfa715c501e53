"""`kb.vectors`: values behind texts, in this base or in the one that `set_database` named."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from duckkb.actions import vector_run, vector_store
from duckkb.actions.vector_store import COLLECTION, Rows
from duckkb.app.folder import make
from duckkb.engine import boot
from duckkb.engine.base import Base
from duckkb.queries import Notice
from duckkb.truth import state
from duckkb.truth.commit import vector_base

Turn = Callable[[], AbstractContextManager[Base]]


class Vectors:
    """The vector store actions. A collection is made when something is first stored in it, by the policy vector-store; one
    that is not there yet is as good as empty. Every method raises `errors.UsageError` for arguments that do not fit and for
    a collection of another kind (E_INTENT)."""

    def __init__(self, home: Turn, elsewhere: Callable[[Path], Turn]) -> None:
        self._home, self._elsewhere = home, elsewhere

    def store(self, embedding_text: str, value: Any, *, collection: str = COLLECTION) -> str:
        """Keep a value (anything that is JSON, but None) behind a text; returns its key. The same text again keeps the key
        and takes the new value. Raises `errors.Unavailable` without a usable model; then nothing is stored."""
        with self._turn() as base:
            vector_store.prepare(base, collection, embedding_text, value)
        with self._turn() as base:
            return vector_store.store(base, collection, embedding_text, value)

    def retrieve(self, key: str, *, collection: str = COLLECTION) -> Any:
        """The value behind a key, or a unique beginning of 4 or more characters. Raises `errors.NotFound`, or
        `errors.Refused` (E_AMBIGUOUS_KEY) that lists the candidates."""
        with self._turn() as base:
            return vector_store.retrieve(base, collection, key)

    def delete(self, key: str, *, collection: str = COLLECTION) -> str:
        """Delete what is behind a key, named as in `retrieve`; returns the whole key."""
        with self._turn() as base:
            return vector_store.delete(base, collection, key)

    def list(self, *, limit: int = 50, offset: int = 0, collection: str = COLLECTION) -> Rows:
        """Records in the order of their keys: key, embedding_text, value, embedding (of unit length; of a text longer than
        a chunk the mean of its chunks; None where there is no model to compute it)."""
        with self._turn() as base:
            return vector_store.listing(base, collection, limit, offset)

    def search(self, query: str, *, top_k: int = 5, collection: str = COLLECTION) -> Rows:
        """The nearest records, the nearest first: key, embedding_text, value, score (cosine distance, 0 to 2, of the best
        chunk). Raises `errors.Unavailable` without a usable model."""
        with self._turn() as base:
            return vector_store.search(base, collection, query, top_k)

    def import_file(self, path: str | Path, *, collection: str = COLLECTION) -> str:
        """Keep the path of a text file, as it is given, behind its contents; returns the key."""
        return self._import_file(path, collection, typed=True)

    def set_database(self, path: str | Path) -> str:
        """Let these actions work on another knowledge base, made where there is none, from now on and in this clone only;
        returns its folder. This base itself ends that. Raises `errors.UsageError` (E_PATH), `errors.Unavailable`."""
        return self._set_database(path, typed=True)

    def run(self, action: Mapping[str, Any] | bytes) -> Any:
        """Do one action given as JSON, `{"action": NAME, ...}`, and return what it gives. Paths are relative to this base and
        must not lead out of it."""
        call = vector_run.parse(action)
        given = dict(call.arguments)
        match call.action:
            case "import_file":
                return self._import_file(given["path"], given.get("collection", COLLECTION), typed=False)
            case "set_database":
                return self._set_database(given["path"], typed=False)
            case _:
                return getattr(self, call.action)(**given)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """As `kb.notices`, of the base that the actions work on."""
        with self._turn() as base:
            return tuple(boot.notices(base))

    def _import_file(self, path: str | Path, collection: str, *, typed: bool) -> str:
        with self._home() as home:
            text = vector_store.read(home, vector_store.readable(home, path, typed=typed), path)
        return self.store(text, str(path), collection=collection)

    def _set_database(self, path: str | Path, *, typed: bool) -> str:
        with self._home() as home:
            root = home.root
            target = vector_store.folder(home, path, typed=typed)
        if target == root.resolve():
            vector_base.write(root, None)
            return str(target)
        try:
            if not (target / "config.yaml").exists():
                make(target)
            state.refuse_unwritable(target)
        except OSError as error:
            raise state.refusal(f"{path} cannot be made a knowledge base", error) from error
        with self._elsewhere(target)():  # it loads
            vector_base.write(root, target)
        return str(target)

    @contextmanager
    def _turn(self) -> Iterator[Base]:
        with self._home() as home:
            target = vector_store.database(home)
        with (self._home if target is None else self._elsewhere(target))() as base:
            yield base
