"""What is done about a base that may be broken, so without opening it: doctor looks, repair mends what is derived."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from duckkb import config
from duckkb.actions import caring
from duckkb.app.wiring import Choice, SystemClock, find, wire
from duckkb.ports import Clock, Embedder
from duckkb.store.base_store import BaseStore
from duckkb.store.place import Place


def _unheard(check: caring.Check) -> None:
    return


def status_unread(path: "str | Path | None" = None) -> dict[str, Any]:
    """As `KnowledgeBase.status`, without opening a base that somebody is writing: who does (`locked_by`), with None for
    what the records would say."""
    root = find(path)
    env = config.around(root)
    settings = config.load(root, env).settings
    return caring.status_unread(
        root, BaseStore(Place.of(env.cache_home, root)), settings, config.is_trusted(root, settings, env)
    )


def doctor(
    path: "str | Path | None" = None,
    *,
    embedder: Embedder | None = None,
    clock: Clock | None = None,
    on_check: Callable[[caring.Check], None] = _unheard,
) -> caring.Health:
    """Check everything that a base needs here, with a verdict and a remedy each, told to `on_check` one by one. Changes
    nothing; raises `errors.StateError` (E_NO_KB) alone."""
    root = find(path)
    env = config.around(root)
    with _borrowed(env.cache_home.expanduser()) as cache_home:
        chosen = Choice(lenient=True, embedder=embedder, clock=clock, cache_home=cache_home)

        def demands() -> tuple[dict[str, str], bool]:
            settings = config.load(root, env).settings
            return config.demands(settings), config.is_trusted(root, settings, env)

        ground = caring.Surroundings(
            root,
            env,
            clock or SystemClock(),
            lambda: wire(root, chosen)[1],
            demands,
            {"duckdb": _duckdb, "tantivy": _tantivy},
        )
        return caring.doctor(ground, on_check)


def repair(
    path: "str | Path | None" = None, *, everything: bool = False, check_only: bool = False, lock_timeout: float = 0.0
) -> caring.Repaired:
    """Drop and rebuild derived state that is damaged; with `everything`, the whole local cache. `check_only` says what
    would be done. Raises `errors.StateError` (E_RECOVER, E_TRACKED_STATE), `errors.Unavailable` (E_LOCKED, E_IO)."""
    root = find(path)
    env = config.around(root)
    options = caring.RepairOptions(everything, check_only, lock_timeout)
    chosen = Choice(lenient=True, lock_timeout=lock_timeout)
    return caring.repair(Place.of(env.cache_home, root), options, lambda: wire(root, chosen)[1])


def _duckdb() -> None:
    from duckkb.lanes import self_test

    self_test.confined()


def _tantivy() -> None:
    from duckkb.indexing.tokens import PlainTokenizer
    from duckkb.lanes import self_test

    self_test.lexical(PlainTokenizer())


@contextmanager
def _borrowed(cache_home: Path) -> Iterator[Path]:
    """A folder that shows the user's converted models by links: what a model would write, it writes beside them."""
    try:
        folder = TemporaryDirectory(prefix="duckkb-doctor-")
    except OSError:  # no room for it, which a check will say
        yield cache_home
        return
    with folder as name:
        with suppress(OSError):
            for file in sorted(cache_home.glob("models/*/*")):
                link = Path(name) / file.relative_to(cache_home)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file)
        yield Path(name)
