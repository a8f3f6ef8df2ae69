import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pip(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def install(wheels: Path, *settings: str) -> Path:
    """Builds and installs the package, and returns its directory."""
    words = [word for setting in settings for word in ("--config-settings", setting)]
    pip("wheel", "--quiet", "--no-index", "--no-deps", "--wheel-dir", str(wheels), str(ROOT), *words)
    (wheel,) = wheels.glob("*.whl")
    pip("install", "--quiet", "--no-index", "--no-deps", "--target", str(wheels / "site"), str(wheel))
    return wheels / "site"


def run(site: Path, script: str, **env: str) -> str:
    env = {"PYTHONPATH": str(site), "HOME": str(site), **env}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_is_pure_and_typed(tmp_path: Path) -> None:
    site = install(tmp_path)
    assert (site / "ctrlz" / "py.typed").exists() and (site / "ctrlz-0.1.0.dist-info" / "RECORD").exists()
    assert run(site, "import ctrlz; print(ctrlz.__version__)") == "0.1.0\n"


@pytest.mark.skipif("CTRLZ_BINARY" not in os.environ, reason="no program to bring along")
def test_a_wheel_can_include_the_program(tmp_path: Path) -> None:
    # A small wrapper script instead of the large program.
    stand_in = tmp_path / "ctrlz"
    stand_in.write_text('#!/bin/sh\nexec "$REAL" "$@"\n')
    site = install(tmp_path / "out", f"binary={stand_in}", "platform=linux_" + os.uname().machine)
    script = "import ctrlz; print(ctrlz.Ctrlz().server().name)"
    assert run(site, script, REAL=os.environ["CTRLZ_BINARY"], PATH="/usr/bin:/bin") == "ctrlz\n"


def test_the_source_archive_can_be_built(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "build_backend"))
    import wheel

    archive = wheel.build_sdist(str(tmp_path))
    subprocess.run(["tar", "-xzf", archive], cwd=tmp_path, check=True)
    source = tmp_path / archive[: -len(".tar.gz")]
    pip("wheel", "--quiet", "--no-index", "--no-deps", "--wheel-dir", str(tmp_path / "out"), str(source))
    (built,) = (tmp_path / "out").glob("*.whl")
    assert "ctrlz/wire.py" in zipfile.ZipFile(built).namelist()
