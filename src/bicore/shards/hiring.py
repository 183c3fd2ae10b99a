"""Who works on the parts of a selection, from what was asked and what there is."""

from __future__ import annotations

import torch

from bicore.runtime import Runtime
from bicore.shards.dask import DaskExecutor
from bicore.shards.executors import Executor, Threads
from bicore.shards.gpu import Card
from bicore.shards.request import Request, lengths
from bicore.sources.parts import ShardSource


def hired(
    executor: Executor | str | None, source: ShardSource, request: Request, runtime: Runtime
) -> Executor:
    """An executor: the one that is given, a cluster by its address, a card, or threads.

    Parameters
    ----------
    executor : Executor or str, optional
        The address of a Dask scheduler, or who works.
    source : ShardSource
        The rows.
    request : Request
        What is asked.
    runtime : Runtime
        Device, threads and memory limit.

    Returns
    -------
    Executor
        The runtime's GPU where it has one and nobody is named; else as many threads as it has and
        its memory limit lets work at a time.

    Examples
    --------
    >>> import numpy as np
    >>> from bicore.sources import ArrayShards
    >>> source = ArrayShards(np.zeros((10, 2)), np.arange(10) % 2)
    >>> hired(Threads(3), source, Request(2), Runtime("cpu"))
    Threads(count=3)
    """
    if executor is not None:
        return DaskExecutor(executor) if type(executor) is str else executor  # type: ignore[return-value]
    device = runtime.torch_device
    if device.type != "cpu":
        return Card(str(device))
    most = runtime.threads or torch.get_num_threads()
    if most > 1:
        most = lengths(source, request).workers_within(runtime.memory_bytes(), most)
    return Threads(most)
