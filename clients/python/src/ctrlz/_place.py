"""The work tree of a Snapshot or a Session, and the synchronous and asyncio runners of flows."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Optional, TypeVar, Union

from . import wire
from ._client import Ctrlz
from ._methods import AsyncMethods, Methods
from ._path import AnyPath

T = TypeVar("T")


@dataclass(frozen=True)
class Ask:
    """A call that a flow requests."""

    method: str
    params: "dict[str, Any]"


#: The implementation of a method for both runners: it yields calls, receives their results, and returns its own.
Flow = Generator[Ask, Any, T]


class Place:
    """A work tree with the location of its store and the client to use."""

    def __init__(
        self,
        dir: AnyPath,
        *,
        data_dir: Optional[AnyPath] = None,
        store: Optional[AnyPath] = None,
        work_tree: Optional[wire.WorkTree] = None,
        profile: Optional[wire.Profile] = None,
        options: Optional[wire.CallOptions] = None,
        client: Optional[Ctrlz] = None,
        timeout: Optional[float] = None,
    ) -> None:
        self._client = client
        self._timeout = timeout
        self._params: dict[str, Any] = {
            "dir": dir,
            "data_dir": data_dir,
            "store": store,
            "work_tree": work_tree,
            "profile": profile,
            "options": options,
        }

    @property
    def client(self) -> Ctrlz:
        return self._client or Ctrlz.shared()

    def call(self, method: str, params: "dict[str, Any]") -> Any:
        return self.client.call(method, {**self._params, **params}, timeout=self._timeout)

    async def call_async(self, method: str, params: "dict[str, Any]") -> Any:
        return await self.client.call_async(method, {**self._params, **params}, timeout=self._timeout)

    def run(self, flow: "Flow[T]") -> T:
        """Runs a flow in the current thread."""
        try:
            ask = next(flow)
            while True:
                try:
                    result = self.call(ask.method, ask.params)
                except Exception as error:
                    ask = flow.throw(error)
                else:
                    ask = flow.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    async def run_async(self, flow: "Flow[T]") -> T:
        """Runs a flow in the current task."""
        try:
            ask = next(flow)
            while True:
                try:
                    result = await self.call_async(ask.method, ask.params)
                except Exception as error:
                    ask = flow.throw(error)
                else:
                    ask = flow.send(result)
        except StopIteration as end:
            value: T = end.value
            return value


class Api(Methods):
    """All methods of the server, for one work tree."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def call(self, method: str, params: "dict[str, Any]") -> Any:
        """Calls a method by its name."""
        return self._place.call(method, params)


class AsyncApi(AsyncMethods):
    """Like :class:`Api`, for asyncio."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def call(self, method: str, params: "dict[str, Any]") -> Any:
        """Calls a method by its name."""
        return await self._place.call_async(method, params)


def pages(method: str, params: "dict[str, Any]") -> "Generator[Ask, Any, list[Any]]":
    """Returns all pages of a result; none if snapshots are disabled."""
    found: list[Any] = []
    offset: Union[int, None] = 0
    while offset is not None:
        page = yield Ask(method, {**params, "offset": offset})
        if isinstance(page, wire.Disabled):
            break
        found.append(page)
        offset = page.next
        if isinstance(page, (wire.Changes, wire.Diff, wire.DiffFull)):
            # All pages compare the same two snapshots, even if files change meanwhile.
            params = {**params, "to": page.to}
    return found
