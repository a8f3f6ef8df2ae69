"""Everything that a call can fail with. All of it is a :class:`CtrlzError`."""

from typing import Any, Literal, Optional, Union

from . import wire

#: What is known about a call that was not answered. ``not done``: nothing was recorded and no file changed.
#: ``unknown``: it may have been done; look before you repeat it.
Outcome = Literal["not done", "unknown"]


class CtrlzError(Exception):
    """Anything that went wrong here."""


class RpcError(CtrlzError):
    """The server's answer was a failure."""

    def __init__(self, method: str, code: int, failure: "dict[str, Any]") -> None:
        super().__init__(str(failure.get("message", "")))
        #: The method that was called.
        self.method = method
        #: The number that JSON-RPC wants.
        self.code = code
        #: What failed, to act on. Treat one you do not know by its fault.
        self.kind: str = failure.get("kind", "unknown")
        #: Who can do something about it.
        self.fault: wire.Fault = failure.get("fault", "machine")
        #: What to do next, where there is something to say.
        self.hint: Optional[str] = failure.get("hint")
        self.path: Optional[str] = failure.get("path")
        self.details: dict[str, Any] = failure.get("details") or {}


class BinaryNotFound(CtrlzError):
    """There is no ``ctrlz`` to start."""

    def __init__(self, tried: str) -> None:
        how = "install ctrlz, or name it with the argument `binary` or in CTRLZ_BINARY"
        super().__init__(f"cannot start {tried}: no such program; {how}")
        #: Where it was looked for.
        self.tried = tried


class ProtocolError(CtrlzError):
    """The program that was started speaks another version of the protocol, or is not ctrlz."""


class ServerEnded(CtrlzError):
    """The server ended before it answered. The next call starts another one."""

    #: The call was sent and cannot be taken back. One that only reads has been tried twice.
    outcome: Outcome = "unknown"

    def __init__(self, method: str, status: Union[int, None], stderr: str) -> None:
        said = stderr.strip()
        super().__init__(f"ctrlz ended ({status}) before it answered {method}" + (said and f": {said}"))
        self.method = method
        #: How it ended, as ``subprocess`` says it: negative is a signal.
        self.status = status
        #: What it said last on standard error.
        self.stderr = stderr


class CallTimeout(CtrlzError, TimeoutError):
    """No answer came in time, and the call was cancelled."""

    def __init__(self, method: str, timeout: float, outcome: Outcome) -> None:
        super().__init__(f"no answer to {method} within {timeout} s (outcome: {outcome})")
        self.method = method
        self.outcome: Outcome = outcome


class Closed(CtrlzError):
    """The client was closed."""

    def __init__(self, method: str) -> None:
        super().__init__(f"{method} was called on a closed client")
