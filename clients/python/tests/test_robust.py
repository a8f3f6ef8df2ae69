import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import pytest

from ctrlz import (
    AsyncSnapshot,
    BinaryNotFound,
    CallTimeout,
    Closed,
    Ctrlz,
    ProtocolError,
    RpcError,
    ServerEnded,
    Snapshot,
    wire,
)

from .conftest import is_alive, until

Bad = Callable[..., Ctrlz]


def pid_of(client: Ctrlz) -> int:
    assert client._child is not None
    return client._child.pid


def test_a_missing_program_is_reported_with_its_path_and_a_hint() -> None:
    with pytest.raises(BinaryNotFound, match=r"/nowhere/ctrlz.*CTRLZ_BINARY"):
        Ctrlz(binary="/nowhere/ctrlz").call("track", {})


@pytest.mark.parametrize("binary", ["/bin/false", "/bin/echo"])
def test_a_program_that_is_not_ctrlz_is_refused(binary: str) -> None:
    with pytest.raises(ProtocolError):
        Ctrlz(binary=binary).call("track", {})


def test_another_protocol_version_is_refused(bad: Bad) -> None:
    with pytest.raises(ProtocolError, match="version 99"):
        bad(protocol=99).call("track", {})


def raw(client: Ctrlz, method: str, how: str, **options: Any) -> None:
    """Makes a call whose answer need not have the result type of the method."""
    try:
        client.call(method, {"dir": how}, **options)
    except KeyError:
        pass


def test_a_call_that_writes_is_not_repeated_when_the_server_dies(bad: Bad) -> None:
    client = bad()
    with pytest.raises(ServerEnded) as failure:
        client.call("restore", {"dir": "die"})
    error = failure.value
    assert (error.method, error.status, error.outcome) == ("restore", -signal.SIGKILL, "unknown")
    assert "the disk caught fire" in error.stderr
    raw(client, "restore", "fine")


def test_a_call_that_only_reads_is_repeated_exactly_once(bad: Bad, tmp_path: Path) -> None:
    client = bad()
    raw(client, "status", "die-once")
    assert (tmp_path / "marker").exists(), "the server did not die"
    for method in ("status", "track"):
        with pytest.raises(ServerEnded):
            client.call(method, {"dir": "die"})


def test_all_pending_calls_fail_when_the_server_dies(bad: Bad) -> None:
    client = bad()
    raw(client, "track", "fine")
    with ThreadPoolExecutor(9) as pool:
        # Calls that write are not repeated, so that none of them reaches a later server.
        calls = [pool.submit(client.call, "restore", {"dir": "hang"}) for _ in range(8)]
        until("all of them are sent", lambda: client._child is not None and len(client._child._waiting) == 8)
        calls.append(pool.submit(client.call, "restore", {"dir": "die"}))
        assert all(isinstance(call.exception(), ServerEnded) for call in calls)


def test_an_invalid_answer_kills_the_server_but_not_the_program(bad: Bad) -> None:
    client = bad()
    with pytest.raises(ServerEnded, match="which is not a message"):
        client.call("track", {"dir": "garbage"})
    raw(client, "track", "fine")


def test_the_next_call_replaces_a_killed_server(client: Ctrlz, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    snap = Snapshot(tmp_path, client=client)
    found, pid = snap.track(), client.server().pid
    os.kill(pid, signal.SIGKILL)
    until("the server is gone and reaped", lambda: not is_alive(pid))
    assert snap.track() == found
    assert client.server().pid != pid


def test_a_call_that_a_dead_server_cannot_have_read_is_repeated(client: Ctrlz, tmp_path: Path) -> None:
    snap = Snapshot(tmp_path, client=client)
    found = snap.track()
    for _ in range(10):
        pid = client.server().pid
        os.kill(pid, signal.SIGKILL)
        # The server is dead, but the client may not have noticed yet.
        until("it is dead", lambda: is_dead(pid))
        assert snap.restore(found) is not None


def is_dead(pid: int) -> bool:
    """Whether all threads have ended. The pipes are open until then."""
    try:
        alone = len(os.listdir(f"/proc/{pid}/task")) == 1
        return alone and ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def test_a_timeout_cancels_the_call_and_reports_that_it_was_not_done(bad: Bad) -> None:
    with pytest.raises(CallTimeout) as failure:
        bad().call("track", {"dir": "hang"}, timeout=0.1)
    assert failure.value.outcome == "not done" and isinstance(failure.value, TimeoutError)


def test_a_call_that_finishes_despite_its_cancellation_returns_its_result(bad: Bad) -> None:
    client = bad(timeout=0.1)
    assert client.call("release_session", {"dir": "late"}) == wire.Released("late", store_removed=False)


def test_an_unanswered_call_has_an_unknown_outcome_and_the_server_keeps_running(bad: Bad) -> None:
    client = bad(grace=0.2)
    with pytest.raises(CallTimeout) as failure:
        client.call("track", {"dir": "deaf"}, timeout=0.05)
    assert failure.value.outcome == "unknown"
    pid = pid_of(client)
    time.sleep(0.3)
    raw(client, "track", "fine")
    assert pid_of(client) == pid, "a server that answers initialize must not be killed"


def test_a_frozen_server_is_replaced(bad: Bad) -> None:
    client = bad(grace=0.2)
    raw(client, "track", "fine")
    pid = pid_of(client)
    with pytest.raises(CallTimeout):
        client.call("track", {"dir": "stop"}, timeout=0.05)
    until("the frozen server is gone", lambda: not is_alive(pid))
    raw(client, "track", "fine")


def test_concurrent_threads_share_one_server(client: Ctrlz, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    snap = Snapshot(tmp_path, client=client)
    found = snap.track()
    pid = client.server().pid

    def call(at: int) -> bool:
        if at % 4 == 0:
            return snap.track() == found
        return snap.file_exists_at(found, "a" if at % 2 else "b") == bool(at % 2)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(call, range(200)))
    assert client.server().pid == pid


def test_concurrent_first_calls_start_one_server(client: Ctrlz) -> None:
    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(lambda _: client.server().pid, range(32)))) == 1


def test_concurrent_tasks_share_one_server(client: Ctrlz, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")

    async def run() -> None:
        snap = AsyncSnapshot(tmp_path, client=client)
        found = await snap.track()
        answers = await asyncio.gather(*(snap.file_exists_at(found, "a" if at % 2 else "b") for at in range(200)))
        assert answers == [bool(at % 2) for at in range(200)]

    asyncio.run(run())


def test_a_cancelled_task_cancels_its_call(bad: Bad) -> None:
    client = bad()

    async def run() -> None:
        task = asyncio.ensure_future(client.call_async("track", {"dir": "hang"}))
        while client._child is None or not client._child._waiting:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while client._child._waiting:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_asyncio_raises_the_same_errors(bad: Bad, tmp_path: Path) -> None:
    async def run() -> None:
        client = bad(grace=0.2)
        with pytest.raises(ServerEnded):
            await client.call_async("restore", {"dir": "die"})
        with pytest.raises(CallTimeout) as failure:
            await client.call_async("track", {"dir": "hang"}, timeout=0.1)
        assert failure.value.outcome == "not done"
        with pytest.raises(CallTimeout) as failure:
            await client.call_async("track", {"dir": "deaf"}, timeout=0.1)
        assert failure.value.outcome == "unknown"
        late = await client.call_async("release_session", {"dir": "late"}, timeout=0.1)
        assert late == wire.Released("late", store_removed=False)
        await client.aclose()
        with pytest.raises(Closed):
            await client.call_async("track", {})
        client = bad()
        with pytest.raises(KeyError):
            await client.call_async("status", {"dir": "die-once"})
        assert (tmp_path / "marker").exists(), "the server did not die"

    asyncio.run(run())


def test_a_large_request_does_not_block_the_event_loop(client: Ctrlz, tmp_path: Path) -> None:
    async def run() -> None:
        snap = AsyncSnapshot(tmp_path, client=client)
        found = await snap.track()
        report = await snap.revert(found, [f"{at:0100}" for at in range(20_000)])
        assert report is not None and report.done == []

    asyncio.run(run())


def test_close_ends_the_server_and_is_final(tmp_path: Path) -> None:
    client = Ctrlz()
    pid = client.server().pid
    client.close()
    assert not is_alive(pid)
    with pytest.raises(Closed):
        client.call("track", {})
    client.close()


def test_close_kills_a_frozen_server(bad: Bad) -> None:
    client = bad(grace=0.1)
    raw(client, "track", "fine")
    pid = pid_of(client)
    os.kill(pid, signal.SIGSTOP)
    client.close()
    assert not is_alive(pid)


def test_a_garbage_collected_client_ends_its_server() -> None:
    client = Ctrlz()
    pid = client.server().pid
    del client
    until("its server is gone", lambda: not is_alive(pid))


def run_python(script: str) -> str:
    env = dict(os.environ, PYTHONPATH=str(Path(__file__).resolve().parents[1] / "src"))
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def test_a_program_without_close_leaves_no_process() -> None:
    pid = int(run_python("import ctrlz; print(ctrlz.Ctrlz.shared().server().pid)"))
    assert not is_alive(pid)


def test_a_killed_program_leaves_no_server() -> None:
    script = "import ctrlz, os; print(ctrlz.Ctrlz.shared().server().pid, flush=True); os.kill(os.getpid(), 9)"
    env = dict(os.environ, PYTHONPATH=str(Path(__file__).resolve().parents[1] / "src"))
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, timeout=30)
    until("its server is gone", lambda: not is_alive(int(done.stdout)))


def test_a_forked_process_starts_its_own_server() -> None:
    pids = run_python(
        "import ctrlz, os, sys\n"
        "client = ctrlz.Ctrlz.shared()\n"
        "print(client.server().pid, flush=True)\n"
        "child = os.fork()\n"
        "print(client.server().pid, flush=True)\n"
        "if child: assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    ).split()
    assert len(pids) == 3 and len(set(pids)) == 2
    for pid in pids:
        until("no server is left", lambda pid=pid: not is_alive(int(pid)))  # type: ignore[misc]


def test_parameters_that_exceed_the_line_limit_are_refused_before_they_are_sent(bad: Bad) -> None:
    client = bad()
    with pytest.raises(RpcError) as failure:
        client.call("track", {"paths": ["x" * (65 << 20)]})
    assert failure.value.kind == "too_large"
    raw(client, "track", "fine")


def test_on_progress_receives_progress_while_a_call_runs(bad: Bad) -> None:
    seen: list[int] = []
    raw(bad(), "track", "progress", on_progress=lambda progress: seen.append(progress.files))
    assert seen == [3]


def test_calls_leave_no_threads(client: Ctrlz) -> None:
    client.server()
    client.close()
    until("all threads are gone", lambda: not [t for t in threading.enumerate() if t.name.startswith("ctrlz")])
