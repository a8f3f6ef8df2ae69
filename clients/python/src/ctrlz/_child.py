"""The child process ``ctrlz rpc``: one request and one answer per line. Restarts and timeouts are up to the caller."""

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

#: Size of the end of standard error that is kept.
STDERR_BYTES = 4096


@dataclass(frozen=True)
class Answer:
    """The outcome of a request: a result, an error, or the end of the process."""

    result: Any = None
    error: Optional["dict[str, Any]"] = None
    ended: bool = False
    #: Whether the process cannot have read the whole request, so that nothing was done.
    unread: bool = False


#: Receives the answer, on the reader thread.
Give = Callable[[Answer], None]
#: Receives the progress of a call, on the reader thread.
Tell = Callable[["dict[str, Any]"], None]


class Child:
    """A process and its pending requests. All methods are thread-safe."""

    def __init__(self, binary: str, words: Sequence[str], env: Optional[Mapping[str, str]]) -> None:
        try:
            self._process = subprocess.Popen(
                [binary, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Unbuffered: a lock of a buffer that another thread holds would stay locked after a fork.
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
        #: Requests that are being written. If the process ends, the writing thread reports their outcome.
        self._sending: "set[int]" = set()
        self._next_id = 1
        self._stderr = b""
        self._over = False
        self._is_deaf = False
        #: Set once the process has ended, is reaped, and its output has been read.
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
        """Whether the process runs and belongs to this process. After a fork it belongs to the parent."""
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
        """Sends a request. `give` is always called, at the latest when the process ends."""
        with self._state:
            number = self._next_id
            self._next_id += 1
            self._waiting[number] = (give, tell)
            self._sending.add(number)
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        was_sent = not self._over and self._write(request)
        with self._state:
            self._sending.discard(number)
            # A failed write means that the process is dead, even if it is not reaped yet.
            self._is_deaf = self._is_deaf or not was_sent
            is_lost = (self._over or not was_sent) and self._waiting.pop(number, None) is not None
        if is_lost:
            give(Answer(ended=True, unread=not was_sent))
        return number

    def cancel(self, number: int) -> None:
        self._write({"jsonrpc": "2.0", "method": "cancel", "params": {"id": number}})

    def finish(self) -> None:
        """Closes standard input: the process answers all pending requests and exits."""
        with self._writing:
            _close(self._process.stdin)

    def signal(self, number: signal.Signals) -> None:
        if not self.ended.is_set():
            self._process.send_signal(number)

    def end(self, grace: float) -> None:
        """Ends the process: by end of input, then SIGTERM, then SIGKILL. Afterwards it is reaped."""
        self.finish()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.ended.wait(grace):
                return
            self.signal(number)
        self.ended.wait(grace)

    def abandon(self) -> None:
        """Closes the pipes in a forked process, without using locks or the process of the parent.

        Otherwise the server would not see the end of its input while the forked process runs.
        """
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None and not stream.closed:
                os.dup2(nowhere, stream.fileno(), inheritable=False)
        os.close(nowhere)
        # Prevents `Popen` from waiting for, signalling or warning about the process of the parent.
        self._process.returncode = 0

    def _write(self, message: Any) -> bool:
        """Returns whether the whole line was written. If not, the process cannot have read it."""
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
            self._stderr += f"it printed {line[:100]!r}, which is not a message ({error})".encode()
            self._process.kill()
        finally:
            self._process.wait()
            # A process that inherited standard error may keep it open after the server has exited.
            listening.join(1)
            with self._state:
                self._over = True
                lost = [number for number in self._waiting if number not in self._sending]
                waiting = [self._waiting.pop(number) for number in lost]
            _close(stdout)
            # A concurrent write fails and reports that the process has ended.
            _close(self._process.stdin)
            self.ended.set()
            for give, _ in waiting:
                give(Answer(ended=True))

    def _receive(self, line: bytes) -> None:
        # Few answers contain such a path, and a hook for every object takes longer than parsing.
        hook = from_wire if b'{"bytes":[' in line else None
        message = json.loads(line, object_hook=hook)
        if not isinstance(message, dict):
            raise ValueError("not an object")
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
        """Removes and returns the pending request with this id. An answer without an id means that a
        request could not be parsed. It does not say which one, so all of them fail."""
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
    """Yields the lines of an unbuffered stream. An incomplete last line is dropped."""
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
        # Ignores EPIPE: the process has exited.
        pass
