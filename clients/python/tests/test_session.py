import asyncio
import os
import signal
from pathlib import Path

import pytest

from ctrlz import AsyncSession, Ctrlz, RevertInfo, Session

from .conftest import is_alive, until


def test_undo_reverses_a_turn_and_redo_reverses_the_undo(tmp_path: Path, client: Ctrlz) -> None:
    session = Session("s1", tmp_path, client=client)
    (tmp_path / "a").write_text("before")
    with session.step(message="m1", tool="bash") as step:
        (tmp_path / "a").write_text("after")
    assert step.ended is not None and step.ended.files == ["a"]
    assert [action.action for action in session.plan_undo().done] == ["overwrite"]
    assert (tmp_path / "a").read_text() == "after"
    session.undo()
    assert (tmp_path / "a").read_text() == "before"
    session.redo()
    assert (tmp_path / "a").read_text() == "after"


def test_a_step_ends_even_if_its_work_fails(tmp_path: Path, client: Ctrlz) -> None:
    session = Session("s1", tmp_path, client=client)
    with pytest.raises(RuntimeError), session.step(message="m1"):
        (tmp_path / "half").write_text("done")
        raise RuntimeError("the tool failed")
    assert len(session.steps()) == 1
    session.undo({"message": "m1"})
    assert not (tmp_path / "half").exists()


def test_a_revert_can_be_reversed_or_committed(tmp_path: Path, client: Ctrlz) -> None:
    session = Session("s1", tmp_path, client=client)
    for message in ("m1", "m2", "m3"):
        with session.step(message=message):
            (tmp_path / message).write_text(message)
    info = session.revert("m2")
    assert isinstance(info, RevertInfo) and (info.messageID, info.partID) == ("m2", None)
    assert info.snapshot and "deleted file mode" in (info.diff or "")
    assert session.revert_info() == info
    assert (tmp_path / "m1").exists() and not (tmp_path / "m2").exists()
    session.unrevert()
    assert session.revert_info() is None and (tmp_path / "m3").exists()
    session.revert("m3")
    assert session.commit_revert().messages == ["m3"]
    assert [diff.file for diff in session.diff()] == ["m1", "m2"]
    assert session.timeline().operations


def test_a_session_can_be_forked_checkpointed_and_released(tmp_path: Path, client: Ctrlz) -> None:
    session = Session("s1", tmp_path, client=client)
    with session.step(message="m1"):
        (tmp_path / "a").write_text("a")
    made = session.checkpoint("green")
    assert made is not None and made.label == "green"
    assert session.fork(id="s2").session == "s2"
    session.release()


def test_a_step_survives_the_death_of_its_server(tmp_path: Path, client: Ctrlz) -> None:
    session = Session("s1", tmp_path, client=client)
    (tmp_path / "a").write_text("before")
    with session.step(message="m1") as step:
        pid = client.server().pid
        os.kill(pid, signal.SIGKILL)
        until("the server is gone", lambda: not is_alive(pid))
        (tmp_path / "a").write_text("after")
    assert step.ended is not None and step.ended.files == ["a"]
    assert [record.inferred for record in session.steps()] == [True], "another server ended the step"
    session.undo()
    assert (tmp_path / "a").read_text() == "before"


def test_steps_are_no_ops_if_snapshots_are_disabled(tmp_path: Path, client: Ctrlz) -> None:
    session = Session("s1", tmp_path, client=client, options={"enabled": False})
    with session.step() as step:
        assert step.id == ""
    assert step.ended is None and session.checkpoint() is None


def test_asyncio_has_the_same_methods(tmp_path: Path, client: Ctrlz) -> None:
    async def run() -> None:
        session = AsyncSession("s1", tmp_path, client=client)
        for message in ("m1", "m2"):
            async with session.step(message=message, tool="bash") as step:
                (tmp_path / message).write_text(message)
            assert step.ended is not None and step.ended.files == [message]
        await session.undo()
        assert not (tmp_path / "m2").exists()
        await session.redo()
        info = await session.revert("m1")
        assert info is not None and info == await session.revert_info()
        assert not (tmp_path / "m1").exists()
        await session.unrevert()
        assert [diff.file for diff in await session.diff()] == ["m1", "m2"]
        assert [record.message for record in await session.steps()] == ["m1", "m2"]

    asyncio.run(run())
