"""Ctrl-Z for coding agents: snapshots of a work tree, and undo for any of it.

A thin client over one ``ctrlz rpc``, which it starts when it is first needed.
"""

from . import wire
from ._client import Ctrlz
from ._decode import encode
from ._errors import (
    BinaryNotFound,
    CallTimeout,
    Closed,
    CtrlzError,
    Outcome,
    ProtocolError,
    RpcError,
    ServerEnded,
)
from ._session import AsyncSession, AsyncStep, RevertInfo, Session, Step
from ._snapshot import AsyncSnapshot, Snapshot
from .snapshots import compute_diff, init_snapshot, track_snapshot
from .wire import Disabled, FileDiff, RestoreReport, UndoReport

__version__ = "0.1.0"

__all__ = [
    "AsyncSession",
    "AsyncSnapshot",
    "AsyncStep",
    "BinaryNotFound",
    "CallTimeout",
    "Closed",
    "Ctrlz",
    "CtrlzError",
    "Disabled",
    "FileDiff",
    "Outcome",
    "ProtocolError",
    "RestoreReport",
    "RevertInfo",
    "RpcError",
    "ServerEnded",
    "Session",
    "Snapshot",
    "Step",
    "UndoReport",
    "compute_diff",
    "encode",
    "init_snapshot",
    "track_snapshot",
    "wire",
]
