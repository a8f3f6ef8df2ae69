"""Times calls through the Python client: reads `CALL COUNT`, prints microseconds as a JSON list."""

import json
import sys
import time
from typing import Any, Callable

from ctrlz import Ctrlz, Session, Snapshot

project, path = sys.argv[1], f"{sys.argv[1]}/changing"
client = Ctrlz()
snapshot = Snapshot(project, client=client)
session = Session("bench", project, store=".agent/snapshots", work_tree="dir", client=client)
known = snapshot.track()


def step() -> None:
    with session.step(message="m"), open(path, "w") as file:
        file.write(str(time.perf_counter_ns()))


calls: "dict[str, Callable[[], Any]]" = {
    "initialize": client.server,
    "file_exists_at": lambda: snapshot.file_exists_at(known, "f0"),
    "track": snapshot.track,
    "step": step,
}


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1000


for line in sys.stdin:
    name, count = line.split()
    print(json.dumps([timed(calls[name]) for _ in range(int(count))]), flush=True)
