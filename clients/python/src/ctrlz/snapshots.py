"""One :class:`ctrlz.Snapshot` per session of an agent, and the hashes it has taken so far."""

import threading

from ._path import AnyPath
from ._snapshot import Snapshot
from .wire import FileDiff

_sessions: "dict[str, tuple[Snapshot, list[str]]]" = {}
_changing = threading.Lock()


def init_snapshot(session_id: str, project_dir: AnyPath) -> None:
    """Begins with a session. Its history is empty, also if there was one before."""
    with _changing:
        _sessions[session_id] = (Snapshot(project_dir), [])


def track_snapshot(session_id: str) -> str:
    """Records the present state, and adds its hash to the session's history."""
    snapshot, history = _sessions[session_id]
    found = snapshot.track()
    history.append(found)
    return found


def compute_diff(session_id: str, from_hash: str, to_hash: str) -> "list[FileDiff]":
    """Every file that differs between two states, with both its texts."""
    return get_snapshot(session_id).diff_full(from_hash, to_hash)


def get_snapshot(session_id: str) -> Snapshot:
    """The snapshots of a session, for everything else. A `KeyError` names one that was not begun."""
    return _sessions[session_id][0]


def snapshot_history(session_id: str) -> "list[str]":
    """The hashes a session has taken, oldest first."""
    return list(_sessions[session_id][1])


def drop_snapshot(session_id: str) -> None:
    """Forgets a session here; its store stays."""
    with _changing:
        _sessions.pop(session_id, None)
