"""A temporary home for each test, and clients whose servers run in a clean environment."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from ctrlz import Ctrlz

BAD_SERVER = Path(__file__).resolve().parents[2] / "conformance" / "bad_server.py"


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Applies to all tests, because the shared client must not use the real home either."""
    made = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(("XDG_", "GIT_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    yield made
    if Ctrlz._shared is not None:
        Ctrlz._shared.close()


@pytest.fixture
def client() -> Iterator[Ctrlz]:
    with Ctrlz() as made:
        yield made


@pytest.fixture
def bad(tmp_path: Path) -> Iterator[Callable[..., Ctrlz]]:
    """Creates clients of a misbehaving server."""
    made: list[Ctrlz] = []

    def make(protocol: int = 1, **options: Any) -> Ctrlz:
        env = {"PATH": os.environ["PATH"], "BAD_PROTOCOL": str(protocol), "BAD_MARKER": str(tmp_path / "marker")}
        made.append(Ctrlz(binary=str(BAD_SERVER), env=env, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def until(what: str, holds: Callable[[], bool]) -> None:
    """Waits until a condition holds. Fails after ten seconds."""
    for _ in range(500):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within ten seconds: {what}")
