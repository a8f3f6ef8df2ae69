"""The errors of calls. All are :class:`CtrlzError`."""

from typing import Any, Literal, Optional, Union

from . import wire

#: Whether a call that was not answered was executed. ``not done``: nothing was recorded and no file changed.
#: ``unknown``: it may have been executed. Check before repeating it.
Outcome = Literal["not done", "unknown"]


class CtrlzError(Exception):
    """Base class of all errors."""


class RpcError(CtrlzError):
    """The server answered with an error."""

    def __init__(self, method: str, code: int, failure: "dict[str, Any]") -> None:
        super().__init__(str(failure.get("message", "")))
        #: Name of the method.
        self.method = method
        #: Error code of JSON-RPC.
        self.code = code
        #: Kind of the error, for programs. Handle unknown kinds by their fault.
        self.kind: str = failure.get("kind", "unknown")
        #: Who can fix the cause.
        self.fault: wire.Fault = failure.get("fault", "machine")
        #: Suggested next step, if there is one.
        self.hint: Optional[str] = failure.get("hint")
        self.path: Optional[str] = failure.get("path")
        self.details: dict[str, Any] = failure.get("details") or {}


class BinaryNotFound(CtrlzError):
    """The program ``ctrlz`` was not found."""

    def __init__(self, tried: str) -> None:
        how = "install ctrlz, or set the argument `binary` or CTRLZ_BINARY"
        super().__init__(f"cannot start {tried}: program not found; {how}")
        #: Name or path that was tried.
        self.tried = tried


class ProtocolError(CtrlzError):
    """The program uses another version of the protocol, or is not ctrlz."""


class ServerEnded(CtrlzError):
    """The server ended before it answered. The next call starts another server."""

    #: The call was sent and may have been executed. A call that only reads was tried twice.
    outcome: Outcome = "unknown"

    def __init__(self, method: str, status: Union[int, None], stderr: str) -> None:
        said = stderr.strip()
        super().__init__(f"ctrlz ended ({status}) before it answered {method}" + (said and f": {said}"))
        self.method = method
        #: Exit status in the form of ``subprocess``: negative for a signal.
        self.status = status
        #: Last output on standard error.
        self.stderr = stderr


class CallTimeout(CtrlzError, TimeoutError):
    """The call was not answered in time and was cancelled."""

    def __init__(self, method: str, timeout: float, outcome: Outcome) -> None:
        super().__init__(f"no answer to {method} within {timeout} s (outcome: {outcome})")
        self.method = method
        self.outcome: Outcome = outcome


class Closed(CtrlzError):
    """The client is closed."""

    def __init__(self, method: str) -> None:
        super().__init__(f"{method} was called on a closed client")
