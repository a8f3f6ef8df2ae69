""":class:`Session`: what an agent did, in steps, and taking it back. :class:`AsyncSession` for asyncio."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Optional

from . import wire
from ._client import Ctrlz
from ._path import AnyPath
from ._place import Api, Ask, AsyncApi, Flow, Place, pages


@dataclass(frozen=True)
class RevertInfo:
    """A revert that can still be taken back."""

    messageID: str
    partID: Optional[str] = None
    #: The state before the revert.
    snapshot: Optional[str] = None
    #: What the revert changed, as text.
    diff: Optional[str] = None


class _Base:
    def __init__(
        self,
        session_id: str,
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
        """
        session_id: The session's id, as the agent has it.
        dir: The work tree, or a directory in it.

        The rest is as in :class:`ctrlz.Snapshot`, but the store is the user's own by default: there
        `ctrlz log` and `ctrlz undo` on the command line see the session, too.
        """
        self.id = session_id
        self._place = Place(
            dir,
            data_dir=data_dir,
            store=store,
            work_tree=work_tree,
            profile=profile,
            options=options,
            client=client,
            timeout=timeout,
        )

    def _begin(self, about: "dict[str, Any]") -> "Flow[Optional[wire.StepBegun]]":
        result = yield Ask("begin_step", {"session": self.id, **about})
        return result if isinstance(result, wire.StepBegun) else None

    def _revert(self, message: str, part: Optional[str]) -> "Flow[Optional[RevertInfo]]":
        yield Ask("revert_to", {"session": self.id, "message": message, "part": part})
        return (yield from self._revert_info())

    def _revert_info(self) -> "Flow[Optional[RevertInfo]]":
        found = yield Ask("revert_state", {"session": self.id})
        state: Optional[wire.RevertState] = found.reverted
        if state is None:
            return None
        compared = yield from pages("diff", {"from": state.before, "to": state.after})
        text = "".join(page.text for page in compared)
        return RevertInfo(state.boundary.message, state.boundary.part, state.before, text)

    def _diff(self) -> "Flow[list[wire.FileDiff]]":
        found = yield from pages("deeds_full", {"of": {"session": self.id}})
        return [file for page in found for file in page.files]

    def _steps(self) -> "Flow[list[wire.StepRecord]]":
        found = yield from pages("steps", {"session": self.id})
        return [step for page in found for step in page.steps]


def _end(begun: Optional[wire.StepBegun]) -> "Flow[Optional[wire.StepEnded]]":
    if begun is None:
        return None
    result = yield Ask("end_step", {"step": begun.step})
    return result if isinstance(result, wire.StepEnded) else None


def _about(**about: Any) -> "dict[str, Any]":
    return about


class Step:
    """A step that is open. Used with `with`, it ends by itself, also if the work fails."""

    def __init__(self, place: Place, begun: Optional[wire.StepBegun]) -> None:
        self._place = place
        #: What was recorded at its beginning; `None` where snapshots are switched off.
        self.begun = begun
        #: What was recorded at its end.
        self.ended: Optional[wire.StepEnded] = None
        self._open = True

    @property
    def id(self) -> str:
        """Its id; empty where snapshots are switched off."""
        return self.begun.step if self.begun else ""

    def end(self) -> Optional[wire.StepEnded]:
        """Records the state after the tool ran, also if it failed. Ends only once."""
        if self._open:
            self.ended = self._place.run(_end(self.begun))
            self._open = False
        return self.ended

    def __enter__(self) -> "Step":
        return self

    def __exit__(
        self,
        kind: Optional["type[BaseException]"],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.end()


class AsyncStep:
    """:class:`Step` for asyncio: `async with session.step(...)`."""

    def __init__(self, place: Place, begin: "Flow[Optional[wire.StepBegun]]") -> None:
        self._place = place
        self._begin = begin
        self._open = False
        self.begun: Optional[wire.StepBegun] = None
        self.ended: Optional[wire.StepEnded] = None

    @property
    def id(self) -> str:
        """Its id; empty where snapshots are switched off."""
        return self.begun.step if self.begun else ""

    async def begin(self) -> "AsyncStep":
        """Records the state before the tool runs."""
        self.begun = await self._place.run_async(self._begin)
        self._open = True
        return self

    async def end(self) -> Optional[wire.StepEnded]:
        """Records the state after the tool ran, also if it failed. Ends only once."""
        if self._open:
            self.ended = await self._place.run_async(_end(self.begun))
            self._open = False
        return self.ended

    async def __aenter__(self) -> "AsyncStep":
        return await self.begin()

    async def __aexit__(
        self,
        kind: Optional["type[BaseException]"],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.end()


class Session(_Base):
    """What an agent did, in steps, and taking it back."""

    @property
    def api(self) -> Api:
        """Every method of the server, for this work tree."""
        return Api(self._place)

    def step(
        self,
        *,
        message: Optional[str] = None,
        part: Optional[str] = None,
        tool: Optional[str] = None,
        label: Optional[str] = None,
        paths: Sequence[AnyPath] = (),
        parent: Optional[wire.ParentParam] = None,
        who: Optional[str] = None,
        detached: Optional[bool] = None,
    ) -> Step:
        """Records the state before a tool runs; from now on changes are the step's."""
        about = _about(
            message=message, part=part, tool=tool, label=label, paths=list(paths), parent=parent,
            who=who, detached=detached,
        )  # fmt: skip
        return Step(self._place, self._place.run(self._begin(about)))

    def plan_undo(
        self, scope: Optional[wire.Scope] = None, *, paths: Sequence[AnyPath] = ()
    ) -> wire.UndoReport:
        """Tells what `undo` would do now, and changes no file."""
        return self.api.plan_undo(session=self.id, scope=scope, paths=paths)

    def undo(
        self,
        scope: Optional[wire.Scope] = None,
        *,
        paths: Sequence[AnyPath] = (),
        force: bool = False,
        plan: Optional[str] = None,
    ) -> wire.UndoReport:
        """Takes steps back, by default the newest turn, and keeps what others did since."""
        return self.api.undo(session=self.id, scope=scope, paths=paths, force=force, plan=plan)

    def redo(self) -> wire.UndoReport:
        """Brings back what the last undo or revert took back."""
        return self.api.redo(session=self.id)

    def revert(self, message: str, part: Optional[str] = None) -> Optional[RevertInfo]:
        """Takes the session back to before a message, or a part of it; not final yet."""
        return self._place.run(self._revert(message, part))

    def unrevert(self) -> wire.UndoReport:
        """Takes the revert back, and keeps what others did since."""
        return self.api.unrevert(session=self.id)

    def commit_revert(self) -> wire.RevertState:
        """Makes the revert final, and tells which messages are gone with it."""
        return self.api.commit_revert(session=self.id)

    def revert_info(self) -> Optional[RevertInfo]:
        """The revert, as long as it can be moved or taken back."""
        return self._place.run(self._revert_info())

    def diff(self) -> "list[wire.FileDiff]":
        """Every file the session changed, unless that is taken back, with both its texts."""
        return self._place.run(self._diff())

    def steps(self) -> "list[wire.StepRecord]":
        """The steps, oldest first."""
        return self._place.run(self._steps())

    def timeline(self, before: Optional[str] = None) -> wire.Log:
        """What happened, newest first; `next` goes on as `before`."""
        return self.api.timeline(session=self.id, before=before)

    def checkpoint(self, label: Optional[str] = None) -> Optional[wire.CheckpointMade]:
        """Records the present state under a name of its own."""
        made = self.api.checkpoint(session=self.id, label=label)
        return made if isinstance(made, wire.CheckpointMade) else None

    def fork(
        self, at: Optional[str] = None, *, into: Optional[AnyPath] = None, id: Optional[str] = None
    ) -> wire.Fork:
        """Makes a session that shares this one's history, with `into` in files of its own."""
        return self.api.fork(session=self.id, at=at, into=into, id=id)

    def release(self) -> None:
        """Lets go of the session: what only it did need not be kept any longer."""
        self.api.release_session(session=self.id)


class AsyncSession(_Base):
    """:class:`Session` for asyncio."""

    @property
    def api(self) -> AsyncApi:
        """Every method of the server, for this work tree."""
        return AsyncApi(self._place)

    def step(
        self,
        *,
        message: Optional[str] = None,
        part: Optional[str] = None,
        tool: Optional[str] = None,
        label: Optional[str] = None,
        paths: Sequence[AnyPath] = (),
        parent: Optional[wire.ParentParam] = None,
        who: Optional[str] = None,
        detached: Optional[bool] = None,
    ) -> AsyncStep:
        """A step around a tool: `async with session.step(message="m1"): ...`."""
        about = _about(
            message=message, part=part, tool=tool, label=label, paths=list(paths), parent=parent,
            who=who, detached=detached,
        )  # fmt: skip
        return AsyncStep(self._place, self._begin(about))

    async def plan_undo(
        self, scope: Optional[wire.Scope] = None, *, paths: Sequence[AnyPath] = ()
    ) -> wire.UndoReport:
        """Tells what `undo` would do now, and changes no file."""
        return await self.api.plan_undo(session=self.id, scope=scope, paths=paths)

    async def undo(
        self,
        scope: Optional[wire.Scope] = None,
        *,
        paths: Sequence[AnyPath] = (),
        force: bool = False,
        plan: Optional[str] = None,
    ) -> wire.UndoReport:
        """Takes steps back, by default the newest turn, and keeps what others did since."""
        return await self.api.undo(
            session=self.id, scope=scope, paths=paths, force=force, plan=plan
        )

    async def redo(self) -> wire.UndoReport:
        """Brings back what the last undo or revert took back."""
        return await self.api.redo(session=self.id)

    async def revert(self, message: str, part: Optional[str] = None) -> Optional[RevertInfo]:
        """Takes the session back to before a message, or a part of it; not final yet."""
        return await self._place.run_async(self._revert(message, part))

    async def unrevert(self) -> wire.UndoReport:
        """Takes the revert back, and keeps what others did since."""
        return await self.api.unrevert(session=self.id)

    async def commit_revert(self) -> wire.RevertState:
        """Makes the revert final, and tells which messages are gone with it."""
        return await self.api.commit_revert(session=self.id)

    async def revert_info(self) -> Optional[RevertInfo]:
        """The revert, as long as it can be moved or taken back."""
        return await self._place.run_async(self._revert_info())

    async def diff(self) -> "list[wire.FileDiff]":
        """Every file the session changed, unless that is taken back, with both its texts."""
        return await self._place.run_async(self._diff())

    async def steps(self) -> "list[wire.StepRecord]":
        """The steps, oldest first."""
        return await self._place.run_async(self._steps())

    async def timeline(self, before: Optional[str] = None) -> wire.Log:
        """What happened, newest first; `next` goes on as `before`."""
        return await self.api.timeline(session=self.id, before=before)

    async def checkpoint(self, label: Optional[str] = None) -> Optional[wire.CheckpointMade]:
        """Records the present state under a name of its own."""
        made = await self.api.checkpoint(session=self.id, label=label)
        return made if isinstance(made, wire.CheckpointMade) else None

    async def fork(
        self, at: Optional[str] = None, *, into: Optional[AnyPath] = None, id: Optional[str] = None
    ) -> wire.Fork:
        """Makes a session that shares this one's history, with `into` in files of its own."""
        return await self.api.fork(session=self.id, at=at, into=into, id=id)

    async def release(self) -> None:
        """Lets go of the session: what only it did need not be kept any longer."""
        await self.api.release_session(session=self.id)
