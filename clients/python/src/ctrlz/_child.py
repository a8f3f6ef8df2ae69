"""One running ``ctrlz rpc``: lines out, lines in. Knows nothing of restarts, time-outs or methods."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Callable, Optional

from ._errors import BinaryNotFound, CtrlzError
from ._path import from_wire

#: How much of standard error is kept.
STDERR_BYTES = 4096


@dataclass(frozen=True)
class Answer:
    """What became of a request: a result, a failure, or the end of the process."""

    result: Any = None
    error: Optional["dict[str, Any]"] = None
    ended: bool = False
    #: It ended before it could read the whole request, so nothing was done.
    unread: bool = False


#: Is given the answer, on the thread that reads.
Give = Callable[[Answer], None]
#: Is told how far a call has come, on the thread that reads.
Tell = Callable[["dict[str, Any]"], None]


class Child:
    """A process and the requests it has not answered. Every method may be called by any thread."""

    def __init__(self, binary: str, words: Sequence[str], env: Optional[Mapping[str, str]]) -> None:
        try:
            self._process = subprocess.Popen(
                [binary, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Buffers have locks, and a lock that a thread holds is held for ever after a fork.
                bufsize=0,
                env=None if env is None else dict(env),
            )
        except (FileNotFoundError, PermissionError) as error:
            raise BinaryNotFound(binary) from error
        except OSError as error:
            raise CtrlzError(f"cannot start {binary}: {error}") from error
        self._state = threading.Lock()
        self._writing = threading.Lock()
        self._waiting: "dict[int, tuple[Give, Optional[Tell]]]" = {}
        #: Requests that are being written; if the process ends, whoever writes knows best what to say.
        self._sending: "set[int]" = set()
        self._next_id = 1
        self._stderr = b""
        self._over = False
        self._is_deaf = False
        #: Set once the process has ended, is reaped, and everything it said was read.
        self.ended = threading.Event()
        self.owner = os.getpid()
        listening = threading.Thread(target=self._listen, name="ctrlz stderr", daemon=True)
        listening.start()
        threading.Thread(target=self._read, args=(listening,), name="ctrlz", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether it runs, and is ours: after a fork it is the parent's."""
        if self._over or self._is_deaf:
            return False
        return self.owner == os.getpid() and self._process.returncode is None

    @property
    def status(self) -> Optional[int]:
        return self._process.returncode

    @property
    def stderr(self) -> str:
        return self._stderr.decode(errors="replace")

    def ask(self, method: str, params: Any, give: Give, tell: Optional[Tell] = None) -> int:
        """Sends a request. The answer always comes, if only that the process ended."""
        with self._state:
            number = self._next_id
            self._next_id += 1
            self._waiting[number] = (give, tell)
            self._sending.add(number)
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        was_sent = not self._over and self._write(request)
        with self._state:
            self._sending.discard(number)
            # Dead, also if nobody else has noticed yet: the next call needs another one.
            self._is_deaf = self._is_deaf or not was_sent
            is_lost = (self._over or not was_sent) and self._waiting.pop(number, None) is not None
        if is_lost:
            give(Answer(ended=True, unread=not was_sent))
        return number

    def cancel(self, number: int) -> None:
        self._write({"jsonrpc": "2.0", "method": "cancel", "params": {"id": number}})

    def finish(self) -> None:
        """No more requests: everything that was asked for is answered, then the process ends."""
        with self._writing:
            _close(self._process.stdin)

    def signal(self, number: signal.Signals) -> None:
        if not self.ended.is_set():
            self._process.send_signal(number)

    def end(self, grace: float) -> None:
        """Ends the process: kindly, then less so. Afterwards it is reaped."""
        self.finish()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.ended.wait(grace):
                return
            self.signal(number)
        self.ended.wait(grace)

    def abandon(self) -> None:
        """After a fork: the process is the parent's, and so are the locks; only lets go of the pipes.

        Otherwise the server would not see the end of its input as long as we live.
        """
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None and not stream.closed:
                os.dup2(nowhere, stream.fileno(), inheritable=False)
        os.close(nowhere)
        # Nobody may wait for, signal or warn about a process that is not ours.
        self._process.returncode = 0

    def _write(self, message: Any) -> bool:
        """Whether the whole line was written. If not, nobody can have read it."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        stdin = self._process.stdin
        assert stdin is not None, "it was opened as a pipe"
        try:
            with self._writing:
                rest = memoryview(line)
                while rest:
                    rest = rest[stdin.write(rest) :]
            return True
        except (OSError, ValueError):
            return False

    def _read(self, listening: threading.Thread) -> None:
        stdout = self._process.stdout
        assert stdout is not None, "it was opened as a pipe"
        line = b""
        try:
            for line in _lines(stdout):
                self._receive(line)
        except (OSError, ValueError) as error:
            self._stderr += f"it printed {line[:100]!r}, which is no message ({error})".encode()
            self._process.kill()
        finally:
            self._process.wait()
            # A process that outlives the server must not keep us waiting for its words.
            listening.join(1)
            with self._state:
                self._over = True
                lost = [number for number in self._waiting if number not in self._sending]
                waiting = [self._waiting.pop(number) for number in lost]
            _close(stdout)
            # Nobody writes any more, or only learns that nobody reads.
            _close(self._process.stdin)
            self.ended.set()
            for give, _ in waiting:
                give(Answer(ended=True))

    def _receive(self, line: bytes) -> None:
        # Most answers have no such path, and looking at every object takes longer than parsing.
        hook = from_wire if b'{"bytes":[' in line else None
        message = json.loads(line, object_hook=hook)
        if not isinstance(message, dict):
            raise ValueError("no object")
        if message.get("method") == "progress":
            with self._state:
                known = self._waiting.get(message["params"]["id"])
            if known and known[1]:
                known[1](message["params"])
            return
        answer = Answer(message.get("result"), message.get("error"))
        for give in self._take(message.get("id")):
            give(answer)

    def _take(self, number: Optional[int]) -> "list[Give]":
        """Those who wait for an id. An answer to no request of ours means that one of ours was not
        understood: nobody can tell which, so all of them fail."""
        with self._state:
            if number is None:
                waiting = list(self._waiting.values())
                self._waiting.clear()
            else:
                known = self._waiting.pop(number, None)
                waiting = [known] if known else []
        return [give for give, _ in waiting]

    def _listen(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None, "it was opened as a pipe"
        try:
            for text in iter(lambda: stderr.read(STDERR_BYTES), b""):
                self._stderr = (self._stderr + text)[-STDERR_BYTES:]
        except (OSError, ValueError):
            pass
        finally:
            _close(stderr)


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines of an unbuffered stream; what comes after the last one is none."""
    parts: list[bytes] = []
    while True:
        chunk = stream.read(1 << 18)
        if not chunk:
            return
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*parts, line])
            parts = []
        parts.append(rest)


def _close(stream: Any) -> None:
    try:
        stream.close()
    except (OSError, ValueError):
        # What was not flushed has nobody to read it.
        pass
