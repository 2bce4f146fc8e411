"""A file translated in shards by the workers of a Ray cluster, line for line as `regard translate` does.

The shards that are done lie in a folder beside the output, each under a name that it is given when it is whole. Whoever
runs the same again, after the job or the machine was killed, does only the shards that are not there. A worker that
dies is replaced, and its shard begun again. The output appears when all of it is there, and the folder then goes.

The driver reads the file and writes the output; workers read the bundle from its path, which all machines must see, and
get their lines and give their translations back through Ray.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from regard.apps.options import Cluster
from regard.errors import ModelError, TextError, install
from regard.search.table import Options

from .shards import Shards, measured, parts_of, shards_beside

_TRIES = 5
"""How often a shard is begun before its worker's death is its own fault."""
Progress = Callable[[int, int], object]
Work = tuple[str, dict[str, object], bool]
"""A bundle, options, and whether every line is cut into sentences."""


def translate_file(
    bundle: str | Path,
    file: str | Path,
    output: str | Path,
    options: Options | None = None,
    *,
    cluster: Cluster | None = None,
    split: bool = False,
    progress: Progress | None = None,
) -> int:
    """Translates a file of lines into another, over a cluster, and returns how many lines there are.

    `split` cuts every line into its sentences, else only those too long for the model. `progress` hears how many shards
    are done, of how many. Raises ModelError without Ray, for options that give anything but one line for a line, and
    where another job writes the same output; TextError, naming the line, for what cannot be read.
    """
    from regard.tasks.engine import stamp_of
    from regard.tasks.translate import load
    from regard.text.lines import write_lines

    cluster, options = cluster or Cluster(), options or Options()
    if find_spec("ray") is None:
        raise ModelError(f"--engine ray needs Ray, which is not installed: {install('ray')}.")
    if (
        isinstance(options.constraints, tuple)
        or options.n_best > 1
        or options.detailed
        or {"samples", "method"} & options.search.keys()
    ):
        raise ModelError("a cluster gives one translation a line; leave out what asks for more.")
    bundle, file, output = Path(bundle).resolve(), Path(file), Path(output)
    load(bundle, device="cpu")  # what is wrong with it is said here, once
    count, digest = measured(file)
    wanted = {"lines": count, "text": digest, "bundle": str(bundle), "stamp": stamp_of(bundle) or ()}
    wanted |= {"options": options.model_dump(mode="json"), "split": split, "shard_lines": cluster.shard_lines}
    with shards_beside(output, wanted, count, cluster.shard_lines) as shards:
        if missing := shards.missing:
            done, work = shards.number - len(missing), (str(bundle), options.model_dump(), split)
            for part in _finished(file, shards, missing, work, cluster):
                done += part
                if progress:
                    progress(done, shards.number)
        write_lines(output, shards.lines())
    return count


def _finished(file: Path, shards: Shards, missing: list[int], work: Work, cluster: Cluster) -> Iterator[int]:
    """Has the missing shards translated, a few at a time, and writes each when it comes; 1 for each."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers
    if not cluster.address:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray's word for: nobody else can join, on loopback only
    import ray

    from regard.tasks.lines import warn_of_cut

    from .worker import translated

    _start(cluster.address)
    try:
        workers = cluster.workers or _processors()
        remote = ray.remote(num_cpus=1, max_retries=_TRIES)(translated)
        waiting, running = parts_of(file, cluster.shard_lines, missing), dict[object, int]()
        while True:
            for number, first, lines in islice(waiting, 2 * workers - len(running)):  # one to do, one to come
                running[remote.remote(*work, lines, first)] = number
            if not running:
                return
            [one], _ = ray.wait(list(running), num_returns=1)
            try:
                found, cut, wrong = ray.get(one)
            except ray.exceptions.RayError as error:
                raise ModelError(
                    f"the cluster did not translate a shard ({type(error).__name__}); run the same again, which keeps "
                    "what is done."
                ) from None
            if wrong:
                raise TextError(f"{file}: {wrong}")
            shards.put(running.pop(one), found)
            warn_of_cut(cut)
            yield 1
    finally:
        ray.shutdown()


def _processors() -> int:
    import ray

    return int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]  # Ray's own


def _start(address: str) -> None:
    """Joins a cluster, or makes one of this machine that listens to this machine alone."""
    import ray

    try:
        if address:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        else:
            ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ModelError(f"the cluster {address or 'of this machine'} cannot be used: {error}") from None
