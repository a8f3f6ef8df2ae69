import os
from pathlib import Path

import pytest

from ctrlz import AsyncSnapshot, Ctrlz, RpcError, Snapshot, wire
from ctrlz._decode import decode, encode
from ctrlz._path import from_wire, to_wire


def test_a_name_that_is_not_utf_8_survives_the_round_trip(tmp_path: Path, client: Ctrlz) -> None:
    snap = Snapshot(tmp_path, client=client)
    raw = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    with open(raw, "w") as file:
        file.write("one")
    before = snap.track()
    with open(raw, "w") as file:
        file.write("two")
    changed = snap.patch(before)
    assert [os.fsencode(path) for path in changed] == [b"caf\xe9.txt"]
    snap.revert(before, changed)
    with open(raw) as file:
        assert file.read() == "one"
    assert snap.get_file_at(before, b"caf\xe9.txt") == "one"
    assert snap.list_files(before) == [os.fsdecode(b"caf\xe9.txt")]


@pytest.mark.parametrize("raw", [bytes(range(256)), "ü🦀".encode(), b"\xf0\x9f\xa6\xff\x80", b"\xed\xb2\x80"])
def test_the_conversion_of_bytes_to_a_path_is_lossless(raw: bytes) -> None:
    sent = to_wire(raw)
    received = from_wire(sent) if isinstance(sent, dict) else sent
    assert os.fsencode(received) == raw


def test_large_and_binary_content_is_read_completely(tmp_path: Path, client: Ctrlz) -> None:
    snap = Snapshot(tmp_path, client=client)
    before = snap.track()
    content = (b"x" * 1023 + b"\n") * (17 << 10)
    (tmp_path / "large").write_bytes(content)
    (tmp_path / "blob").write_bytes(b"\xff\x00\xfe")
    after = snap.track(["large", "blob"])
    assert snap.get_bytes_at(after, "large") == content
    assert snap.get_bytes_at(after, tmp_path / "blob") == b"\xff\x00\xfe"
    assert snap.get_bytes_at(after, "nothing") is None and snap.get_file_at(after, "nothing") is None
    assert [file.file for file in snap.diff_full(before, after)] == ["blob", "large"]
    assert snap.diff(before, after).count("diff --git ") == 2


def test_restore_keeps_files_created_since_unless_it_is_exact(tmp_path: Path, client: Ctrlz) -> None:
    snap = Snapshot(tmp_path, client=client)
    for name in "abcd":
        (tmp_path / name).write_text(name)
    before = snap.track()
    (tmp_path / "a").write_text("changed")
    (tmp_path / "new").write_text("new")
    snap.restore(before)
    assert (tmp_path / "a").read_text() == "a" and (tmp_path / "new").exists()
    report = snap.restore(before, exact=True)
    assert report is not None and report.done == [wire.Action("remove", "new")]
    assert not (tmp_path / "new").exists()


def test_hashes_are_empty_if_snapshots_are_disabled(tmp_path: Path, client: Ctrlz) -> None:
    snap = Snapshot(tmp_path, client=client, options={"enabled": False})
    assert snap.track() == "" and snap.patch("") == [] and snap.diff("") == "" and snap.diff_full("", "") == []
    assert snap.revert("", ["a"]) is None and snap.restore("") is None
    assert snap.list_files("") == [] and not snap.file_exists_at("", "a") and snap.get_file_at("", "a") is None


def test_an_error_has_a_kind_and_leaves_the_files_unchanged(tmp_path: Path, client: Ctrlz) -> None:
    (tmp_path / "a").write_text("a")
    with pytest.raises(RpcError) as failure:
        Snapshot(tmp_path, client=client).restore("1" * 40)
    error = failure.value
    assert (error.kind, error.fault, error.method) == ("unknown_snapshot", "caller", "restore")
    assert error.details["hash"] == "1" * 40
    assert (tmp_path / "a").read_text() == "a"


def test_the_store_can_be_in_a_data_dir(tmp_path: Path, client: Ctrlz) -> None:
    project, data = tmp_path / "project", tmp_path / "data"
    project.mkdir()
    (project / "a").write_text("a")
    assert Snapshot(project, data_dir=data, client=client).track()
    assert not (project / ".agent").exists() and any(data.iterdir())


def test_options_apply_to_the_call(tmp_path: Path, client: Ctrlz) -> None:
    for name in ("a.txt", "a.log"):
        (tmp_path / name).write_text(name)
    snap = Snapshot(tmp_path, client=client, options={"exclude": ["*.log"], "max_new_file_bytes": 4})
    recorded = snap.api.track()
    assert isinstance(recorded, wire.Snapshot)
    assert [(skipped.path, skipped.reason) for skipped in recorded.skipped] == [("a.txt", "too_large")]
    with pytest.raises(RpcError, match="unknown field|unknown parameter|misspelt"):
        snap.api.call("track", {"misspelt": True})


def test_asyncio_has_the_same_methods(tmp_path: Path, client: Ctrlz) -> None:
    import asyncio

    async def run() -> None:
        snap = AsyncSnapshot(tmp_path, client=client)
        (tmp_path / "a").write_text("one\n")
        before = await snap.track()
        (tmp_path / "a").write_text("two\n")
        after = await snap.track()
        assert await snap.patch(before, after) == ["a"]
        assert "+two" in await snap.diff(before, after)
        assert [diff.after for diff in await snap.diff_full(before)] == ["two\n"]
        assert await snap.get_file_at(before, "a") == "one\n"
        assert await snap.list_files(before) == ["a"] and await snap.file_exists_at(before, "a")
        await snap.revert(before, ["a"])
        assert (tmp_path / "a").read_text() == "one\n"
        await snap.restore(after)
        assert (tmp_path / "a").read_text() == "two\n"
        assert (await snap.api.status()).enabled

    asyncio.run(run())


def test_unknown_fields_of_a_newer_server_are_ignored() -> None:
    value = {"path": "a", "status": "added", "colour": "blue"}
    assert encode(decode(wire.Change, value)) == {"path": "a", "status": "added"}
    assert decode(wire.Diff, {"from": "a", "to": "b", "text": "", "truncated": False, "next": None, "total": 0}).from_ == "a"
