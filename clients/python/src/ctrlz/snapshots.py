"""Keeps one :class:`ctrlz.Snapshot` and its hashes per session of an agent."""

import threading

from ._path import AnyPath
from ._snapshot import Snapshot
from .wire import FileDiff

_sessions: "dict[str, tuple[Snapshot, list[str]]]" = {}
_changing = threading.Lock()


def init_snapshot(session_id: str, project_dir: AnyPath) -> None:
    """Starts a session with an empty history, even if the session already exists."""
    with _changing:
        _sessions[session_id] = (Snapshot(project_dir), [])


def track_snapshot(session_id: str) -> str:
    """Records the current state, and adds its hash to the history of the session."""
    snapshot, history = _sessions[session_id]
    found = snapshot.track()
    history.append(found)
    return found


def compute_diff(session_id: str, from_hash: str, to_hash: str) -> "list[FileDiff]":
    """Returns every file that differs between two snapshots, with both texts."""
    return get_snapshot(session_id).diff_full(from_hash, to_hash)


def get_snapshot(session_id: str) -> Snapshot:
    """Returns the `Snapshot` of a session. Raises `KeyError` for an unknown session."""
    return _sessions[session_id][0]


def snapshot_history(session_id: str) -> "list[str]":
    """Returns the hashes of a session, oldest first."""
    return list(_sessions[session_id][1])


def drop_snapshot(session_id: str) -> None:
    """Forgets a session. Its store is kept."""
    with _changing:
        _sessions.pop(session_id, None)
