"""Ctrl-Z for coding agents: snapshots of a work tree, and undo of any change.

A thin client of one ``ctrlz rpc`` process, which is started by the first call.
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
