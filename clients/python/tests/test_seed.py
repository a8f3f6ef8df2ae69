"""Code written for the original Snapshot class works unchanged, except for its import."""

import subprocess
from pathlib import Path

import pytest

from ctrlz import FileDiff, Snapshot, compute_diff, init_snapshot, track_snapshot


@pytest.fixture
def temp_project(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def test_track_and_revert(temp_project: Path) -> None:
    snap = Snapshot(str(temp_project))
    (temp_project / "test.txt").write_text("original")
    hash1 = snap.track()
    (temp_project / "test.txt").write_text("modified")
    snap.track()
    snap.revert(hash1, ["test.txt"])
    assert (temp_project / "test.txt").read_text() == "original"


def test_keywords_and_results_are_compatible(temp_project: Path) -> None:
    snap = Snapshot(project_dir=str(temp_project))
    assert not (temp_project / ".agent").exists(), "the store was created before the first call"
    (temp_project / "main.py").write_text("one\n")
    before = snap.track()
    assert len(before) == 40 and int(before, 16) >= 0
    (temp_project / "main.py").write_text("two\n")
    after = snap.track()
    assert snap.patch(before) == ["main.py"]
    assert snap.patch(before, after) == ["main.py"]
    diffs: list[FileDiff] = snap.diff_full(before, after)
    assert [(d.file, d.before, d.after, d.additions, d.deletions) for d in diffs] == [
        ("main.py", "one\n", "two\n", 1, 1)
    ]
    assert snap.get_file_at(before, "main.py") == "one\n"
    assert snap.list_files(before) == ["main.py"]
    assert snap.file_exists_at(before, "main.py") and not snap.file_exists_at(before, "other.py")
    snap.revert(hash=before, files=["main.py"])
    assert (temp_project / "main.py").read_text() == "one\n"
    (temp_project / "main.py").write_text("three\n")
    snap.restore(hash=after)
    assert (temp_project / "main.py").read_text() == "two\n"


def test_the_store_is_a_bare_repository_that_is_not_part_of_snapshots(temp_project: Path) -> None:
    snap = Snapshot(str(temp_project))
    (temp_project / "a").write_text("a")
    found = snap.track()
    store = temp_project / ".agent" / "snapshots"
    assert (store / "HEAD").exists() and (store / "objects").is_dir() and (store / "refs").is_dir()
    assert ".agent/" in (store / "info" / "exclude").read_text()
    git = ["git", "--git-dir", str(store), "ls-tree", "-r", "--name-only", found]
    assert subprocess.run(git, capture_output=True, text=True, check=True).stdout == "a\n"


def test_a_session_has_a_history(temp_project: Path) -> None:
    init_snapshot("s1", str(temp_project))
    before = track_snapshot("s1")
    (temp_project / "new.txt").write_text("new\n")
    after = track_snapshot("s1")
    (diff,) = compute_diff("s1", before, after)
    assert (diff.file, diff.before, diff.after, diff.status) == ("new.txt", "", "new\n", "added")
    from ctrlz.snapshots import drop_snapshot, snapshot_history

    assert snapshot_history("s1") == [before, after]
    drop_snapshot("s1")
    with pytest.raises(KeyError):
        track_snapshot("s1")
