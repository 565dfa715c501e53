"""The shards of an index job, built on a Ray cluster.

    duckkb index build --executor ray:10.0.0.5:6379 --shards 64 --out /shared/shards

Each shard is a task, which opens the base by its path and builds the shard as `index build --shard` does. The
base and the folder must be at the same paths on every machine. A task whose worker is lost moves to another
worker, which continues from where it stopped. Needs the extra `ray`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from duckkb import app
from duckkb.engine.index_jobs import JobOptions
from duckkb.engine.shard_jobs import ShardBuilt
from duckkb.index.team_cache import Shard
from duckkb.types.errors import DuckkbError, Unavailable

_RETRIES = 8


def build_shards(
    root: Path, count: int, out: Path, *, address: str = "", everything: bool = False, lock_timeout: float = 60.0
) -> Iterator[ShardBuilt]:
    """Build all shards of a base, and yield each when it is done.

    Without an `address`, Ray is started on this machine, on its loopback alone, and stopped afterwards. Raises
    `errors.Unavailable` (E_EXECUTOR) without Ray, where nobody answers at the address, and where a shard's
    workers were lost repeatedly. Also raises what building a shard raises.
    """
    ray = _connect_ray(address)
    try:
        task = ray.remote(max_retries=_RETRIES, num_cpus=1)(_build)
        where = str(root.resolve()), str(out.resolve()), everything, lock_timeout
        pending_tasks = [task.remote(Shard(count, number), *where) for number in range(1, count + 1)]
        while pending_tasks:
            finished_tasks, pending_tasks = ray.wait(pending_tasks)
            yield from _collect_answers(ray, finished_tasks)
    finally:
        ray.shutdown()


def _collect_answers(ray: Any, finished_tasks: list[Any]) -> Iterator[ShardBuilt]:
    for task in finished_tasks:
        try:
            answer = ray.get(task)
        except ray.exceptions.RayError as error:
            message = f"a shard was not made: {str(error).strip().splitlines()[-1]}"
            raise Unavailable(
                message, code="E_EXECUTOR", suggestion="run it again; finished shards are kept"
            ) from error
        if isinstance(answer, DuckkbError):
            raise answer
        yield answer


def _build(shard: Shard, root: str, out: str, everything: bool, lock_timeout: float) -> "ShardBuilt | DuckkbError":
    """Build a shard in a worker. Waits for the shard's lock, since a lost worker may still be ending."""
    try:
        with app.open(root, lock_timeout=lock_timeout) as kb:
            return kb.index_build_shard(shard, Path(out), everything=everything, options=JobOptions(wait=True))
    except DuckkbError as problem:  # a retry would not help; returned, since results are sent
        arguments = problem.message, problem.code, problem.suggestion, dict(problem.details), tuple(problem.findings)
        return DuckkbError(*arguments, problem.exit_code)


def _connect_ray(address: str) -> Any:
    """Return a connected Ray, which reports no usage and listens only on this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError as error:
        message = f"the executor needs Ray, which is not installed: missing {error.name or error}"
        raise Unavailable(message, code="E_EXECUTOR", suggestion="pip install 'duckkb[ray]'") from error
    try:
        if address:
            ray.init(address, log_to_driver=False)
        else:
            ray.init(include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    except (ConnectionError, RuntimeError, ValueError) as error:
        message = f"Ray does not answer{f' at {address}' if address else ''}: {error}"
        raise Unavailable(message, code="E_EXECUTOR", suggestion="give the address of a cluster, host:port") from error
    return ray
