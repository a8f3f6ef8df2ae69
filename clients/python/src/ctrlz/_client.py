""":class:`Ctrlz`: typed calls over one ``ctrlz rpc`` process, which is restarted after it ended."""

import asyncio
import atexit
import os
import shutil
import signal
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Optional

from . import wire
from ._child import Answer, Child, Tell
from ._decode import decode
from ._errors import CallTimeout, Closed, ProtocolError, RpcError, ServerEnded
from ._methods import ACCESS, RESULTS
from ._path import to_wire

#: Maximum length of a line that the server reads.
MAX_LINE_BYTES = 64 << 20
#: Writing a longer request may block until the server reads it.
PIPE_BYTES = 32 << 10
Progress = Callable[[wire.ProgressParams], None]


class Ctrlz:
    """A client. Any number of threads and tasks may use it concurrently.

    If the server dies, a call that only reads is repeated once. Any other call fails with
    :class:`ServerEnded`, because it is unknown whether it was executed, unless the server cannot have
    read the request: then it is repeated once, too.
    """

    _shared: "Optional[Ctrlz]" = None
    _sharing = threading.Lock()

    def __init__(
        self,
        *,
        binary: Optional[str] = None,
        args: Sequence[str] = (),
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = 120.0,
        grace: float = 5.0,
    ) -> None:
        """
        binary: Path of the program. Default: CTRLZ_BINARY, else the one in this package, else `ctrlz` on the PATH.
        args: Arguments before `rpc`, such as `["--data-dir", "/var/lib/agent"]`.
        env: Environment of the program. Default: that of this process.
        timeout: Time limit of a call in seconds; `None` for no limit.
        grace: Time limit for a cancelled call to end, and for `close`, in seconds.
        """
        self._binary = binary
        self._words = [*args, "rpc"]
        self._env = env
        self._timeout = timeout
        self._grace = grace
        self._closed = False
        self._starting = threading.Lock()
        self._child: Optional[Child] = None
        _CLIENTS.add(self)

    @staticmethod
    def shared() -> "Ctrlz":
        """Returns the client that is used where no other one is given."""
        with Ctrlz._sharing:
            if Ctrlz._shared is None or Ctrlz._shared._closed:
                Ctrlz._shared = Ctrlz()
            return Ctrlz._shared

    def call(
        self,
        method: str,
        params: "dict[str, Any]",
        *,
        timeout: Optional[float] = None,
        on_progress: Optional[Progress] = None,
    ) -> Any:
        """Calls a method and returns its result as a type of :mod:`ctrlz.wire`."""
        request = _Request(self, method, params, timeout, on_progress)
        for is_last in request.attempts():
            child = self._running(method)
            box = _Box()
            number = child.ask(method, request.params, box.give, request.tell)
            if not box.wait(request.timeout):
                child.cancel(number)
                if not box.wait(self._grace):
                    self._probe(child)
                request.check_late(box.answer)
            if is_last or not request.is_lost(box.answer):
                return request.result(box.answer, child)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def call_async(
        self,
        method: str,
        params: "dict[str, Any]",
        *,
        timeout: Optional[float] = None,
        on_progress: Optional[Progress] = None,
    ) -> Any:
        """Like :meth:`call`, for asyncio. Cancelling the task cancels the call."""
        request = _Request(self, method, params, timeout, on_progress)
        loop = asyncio.get_running_loop()
        for is_last in request.attempts():
            child = await self._running_async(method)
            future: asyncio.Future[Answer] = loop.create_future()
            give = partial(_give_to_loop, loop, future)
            if request.is_large:
                number = await asyncio.to_thread(child.ask, method, request.params, give, request.tell)
            else:
                number = child.ask(method, request.params, give, request.tell)
            try:
                done, _ = await asyncio.wait({future}, timeout=request.timeout)
            except asyncio.CancelledError:
                child.cancel(number)
                raise
            if not done:
                child.cancel(number)
                done, _ = await asyncio.wait({future}, timeout=self._grace)
                if not done:
                    self._probe(child)
                request.check_late(future.result() if done else None)
            if is_last or not request.is_lost(future.result()):
                return request.result(future.result(), child)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def server(self) -> wire.Initialized:
        """Returns information about the server, and starts it if necessary."""
        found = self.call("initialize", {})
        assert isinstance(found, wire.Initialized), "results are decoded by the method's type"
        return found

    def close(self) -> None:
        """Ends the server after it has answered all pending calls. Later calls fail."""
        self._closed = True
        with self._starting:
            child = self._child
        if child is not None and child.owner == os.getpid():
            child.end(self._grace)

    async def aclose(self) -> None:
        """Like :meth:`close`, for asyncio."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> "Ctrlz":
        return self

    def __exit__(
        self,
        kind: Optional["type[BaseException]"],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    async def __aenter__(self) -> "Ctrlz":
        return self

    async def __aexit__(
        self,
        kind: Optional["type[BaseException]"],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        child = getattr(self, "_child", None)
        if child is not None and child.is_usable:
            child.finish()

    def _running(self, method: str) -> Child:
        """Returns the running server. Of several concurrent callers, only one starts it."""
        with self._starting:
            if self._closed:
                raise Closed(method)
            if self._child is None or not self._child.is_usable:
                self._child = self._start()
            return self._child

    async def _running_async(self, method: str) -> Child:
        child = self._child
        if child is not None and child.is_usable and not self._closed:
            return child
        return await asyncio.to_thread(self._running, method)

    def _start(self) -> Child:
        binary = self._binary or find_binary(self._env)
        child = Child(binary, self._words, self._env)
        box = _Box()
        child.ask("initialize", {"client": "ctrlz (Python)"}, box.give)
        box.wait(30)
        problem = _why_unusable(box.answer, child)
        if problem is None:
            return child
        child.signal(signal.SIGKILL)
        child.end(self._grace)
        raise ProtocolError(f"{binary} cannot be used: {problem}")

    def _probe(self, child: Child) -> None:
        """Kills the server if it does not answer `initialize`, so that the next call starts another one."""
        box = _Box()

        def check() -> None:
            child.ask("initialize", {}, box.give)
            if not box.wait(self._grace):
                child.signal(signal.SIGKILL)

        threading.Thread(target=check, name="ctrlz probe", daemon=True).start()


class _Box:
    """Passes an answer from the reader thread to a waiting thread."""

    def __init__(self) -> None:
        self._given = threading.Event()
        self.answer: Optional[Answer] = None

    def give(self, answer: Answer) -> None:
        self.answer = answer
        self._given.set()

    def wait(self, seconds: Optional[float]) -> bool:
        return self._given.wait(seconds)


def _give_to_loop(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Answer]", answer: Answer
) -> None:
    try:
        loop.call_soon_threadsafe(_resolve, future, answer)
    except RuntimeError:
        # The event loop is closed, so no task waits for the answer.
        pass


def _resolve(future: "asyncio.Future[Answer]", answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)


class _Request:
    """A request, and the rules for its answer."""

    def __init__(
        self,
        client: Ctrlz,
        method: str,
        params: "dict[str, Any]",
        timeout: Optional[float],
        on_progress: Optional[Progress],
    ) -> None:
        self.method = method
        self.timeout = client._timeout if timeout is None else timeout
        given = dict(params, progress=True) if on_progress else params
        self.params: dict[str, Any] = to_wire(given)
        size = _size(self.params)
        if size > MAX_LINE_BYTES - 1024:
            message = f"the parameters have more than {MAX_LINE_BYTES} bytes"
            raise RpcError(method, -32700, {"kind": "too_large", "fault": "protocol", "message": message})
        self.is_large = size > PIPE_BYTES
        self.repeatable = _only_reads(method, params)
        self.tell: Optional[Tell] = None
        if on_progress:
            tell = on_progress
            self.tell = lambda seen: tell(wire.ProgressParams(**seen))

    def check_late(self, answer: Optional[Answer]) -> None:
        """After a timeout: raises `CallTimeout` unless the call has finished anyway."""
        error = answer.error if answer else None
        cancelled = error is not None and error["data"]["kind"] == "cancelled"
        if answer is None or cancelled:
            raise CallTimeout(self.method, self.timeout or 0, "not done" if cancelled else "unknown")

    def attempts(self) -> "list[bool]":
        """Returns one element per attempt; true for the last one."""
        return [False, True]

    def is_lost(self, answer: Optional[Answer]) -> bool:
        """Whether the server ended before it answered, and the call can be repeated."""
        return answer is not None and answer.ended and (answer.unread or self.repeatable)

    def result(self, answer: Optional[Answer], child: Child) -> Any:
        if answer is None or answer.ended:
            raise ServerEnded(self.method, child.status, child.stderr)
        if answer.error is not None:
            raise RpcError(self.method, answer.error["code"], answer.error["data"])
        return decode(RESULTS.get(self.method, Any), answer.result)


def _size(value: Any) -> int:
    """Estimates the size of a value as JSON, in bytes."""
    if isinstance(value, str):
        return len(value.encode()) + 2 if len(value) > PIPE_BYTES else 3 * len(value)
    if isinstance(value, dict):
        return sum(len(key) + _size(item) for key, item in value.items())
    if isinstance(value, list):
        return sum(map(_size, value)) if value and not isinstance(value[0], int) else 4 * len(value)
    return 8


def _only_reads(method: str, params: "dict[str, Any]") -> bool:
    """Whether repeating the call has no side effect."""
    access = ACCESS.get(method)
    # With `to`, two existing snapshots are compared and nothing is recorded.
    compares = access == "records" and params.get("to") is not None
    return access == "reads" or compares or method == "initialize"


def _why_unusable(answer: Optional[Answer], child: Child) -> Optional[str]:
    if answer is None:
        return "it did not answer `initialize`"
    if answer.ended:
        return f"it ended ({child.status}): {child.stderr.strip()}"
    protocol = (answer.result or {}).get("protocol")
    if protocol == wire.PROTOCOL:
        return None
    return (
        f"it uses version {protocol} of the protocol and this client version {wire.PROTOCOL}; "
        "update the older one"
    )


def find_binary(env: Optional[Mapping[str, str]] = None) -> str:
    """Returns the path of the program to start by default."""
    environment = os.environ if env is None else env
    named = environment.get("CTRLZ_BINARY")
    bundled = Path(__file__).parent / "_bin" / "ctrlz"
    if named:
        return named
    if bundled.exists():
        return str(bundled)
    return shutil.which("ctrlz", path=environment.get("PATH")) or "ctrlz"


_CLIENTS: "weakref.WeakSet[Ctrlz]" = weakref.WeakSet()


def _close_all() -> None:
    for client in list(_CLIENTS):
        client.close()


def _forget_after_fork() -> None:
    """Drops the servers and locks of the parent. The first call starts a new server."""
    Ctrlz._sharing = threading.Lock()
    for client in list(_CLIENTS):
        client._starting = threading.Lock()
        child, client._child = client._child, None
        if child is not None:
            child.abandon()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_after_fork)
