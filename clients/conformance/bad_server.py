#!/usr/bin/env python3
"""A misbehaving `ctrlz rpc`: the parameter `dir` of a call selects the misbehaviour.

All clients are tested against it, for calls whose server dies, hangs or sends invalid answers.
Environment: BAD_MARKER names a file that is created before the first death. BAD_PROTOCOL is the protocol
version that the server reports.
"""

import json
import os
import signal
import sys

NOTHING = {"done": [], "files": [], "hash": "0" * 40, "session": "late", "store_removed": False}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def die():
    sys.stderr.write("the disk caught fire\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def answer(number, how):
    """Answers a call, or misbehaves as requested."""
    if how == "die":
        die()
    elif how == "die-once" and not os.path.exists(os.environ["BAD_MARKER"]):
        with open(os.environ["BAD_MARKER"], "w"):
            die()
    elif how == "garbage":
        print("Segmentation fault (core dumped)", flush=True)
    elif how == "progress":
        seen = {"id": number, "files": 3, "files_to_read": 2, "files_read": 1}
        send({"method": "progress", "params": seen})
        send({"id": number, "result": NOTHING})
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how not in ("hang", "deaf", "late"):
        send({"id": number, "result": dict(NOTHING, pid=os.getpid())})


def main():
    running = {}
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message["method"], message.get("params") or {}
        if method == "initialize":
            protocol = int(os.environ.get("BAD_PROTOCOL", "1"))
            send({"id": message["id"], "result": {"protocol": protocol, "pid": os.getpid()}})
        elif method == "cancel":
            number = params["id"]
            if running.get(number) == "hang":
                data = {"kind": "cancelled", "fault": "conflict", "message": "cancelled"}
                send({"id": number, "error": {"code": -32800, "message": "cancelled", "data": data}})
            elif running.get(number) == "late":
                send({"id": number, "result": NOTHING})
        else:
            running[message["id"]] = params.get("dir")
            answer(message["id"], params.get("dir"))


main()
