""":class:`Session`: records tool calls as steps, and undoes them. :class:`AsyncSession` is the asyncio version."""

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
    """A revert that is not final yet."""

    messageID: str
    partID: Optional[str] = None
    #: Snapshot before the revert.
    snapshot: Optional[str] = None
    #: Changes made by the revert, as a patch.
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
        session_id: Id of the session, chosen by the agent.
        dir: Path of the work tree, or of a directory in it.

        Other arguments are those of :class:`ctrlz.Snapshot`, but the default store is that of the user,
        so that `ctrlz log` and `ctrlz undo` on the command line see the session, too.
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
        found = yield from pages("step_diff_full", {"of": {"session": self.id}})
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
    """An open step. In a `with` statement it ends automatically, even if the work fails."""

    def __init__(self, place: Place, begun: Optional[wire.StepBegun]) -> None:
        self._place = place
        #: Result of `begin_step`; `None` if snapshots are disabled.
        self.begun = begun
        #: Result of `end_step`.
        self.ended: Optional[wire.StepEnded] = None
        self._open = True

    @property
    def id(self) -> str:
        """Id of the step; empty if snapshots are disabled."""
        return self.begun.step if self.begun else ""

    def end(self) -> Optional[wire.StepEnded]:
        """Ends the step: records the state after the tool. Idempotent."""
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
        """Id of the step; empty if snapshots are disabled."""
        return self.begun.step if self.begun else ""

    async def begin(self) -> "AsyncStep":
        """Begins the step: records the state before the tool runs."""
        self.begun = await self._place.run_async(self._begin)
        self._open = True
        return self

    async def end(self) -> Optional[wire.StepEnded]:
        """Ends the step: records the state after the tool. Idempotent."""
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
    """Records the tool calls of an agent as steps, and undoes them."""

    @property
    def api(self) -> Api:
        """All methods of the server, for this work tree."""
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
        """Begins a step: records the state before a tool runs."""
        about = _about(
            message=message, part=part, tool=tool, label=label, paths=list(paths), parent=parent,
            who=who, detached=detached,
        )  # fmt: skip
        return Step(self._place, self._place.run(self._begin(about)))

    def plan_undo(
        self, scope: Optional[wire.Scope] = None, *, paths: Sequence[AnyPath] = ()
    ) -> wire.UndoReport:
        """Returns what `undo` would do now, without changing any file."""
        return self.api.plan_undo(session=self.id, scope=scope, paths=paths)

    def undo(
        self,
        scope: Optional[wire.Scope] = None,
        *,
        paths: Sequence[AnyPath] = (),
        force: bool = False,
        plan: Optional[str] = None,
    ) -> wire.UndoReport:
        """Undoes steps, by default the newest turn, and keeps later changes by others."""
        return self.api.undo(session=self.id, scope=scope, paths=paths, force=force, plan=plan)

    def redo(self) -> wire.UndoReport:
        """Reverses the last undo or revert."""
        return self.api.redo(session=self.id)

    def revert(self, message: str, part: Optional[str] = None) -> Optional[RevertInfo]:
        """Reverts the session to before a message, or a part of it, until it is committed."""
        return self._place.run(self._revert(message, part))

    def unrevert(self) -> wire.UndoReport:
        """Reverses the revert and keeps later changes by others."""
        return self.api.unrevert(session=self.id)

    def commit_revert(self) -> wire.RevertState:
        """Makes the revert final, and returns the messages that it removed."""
        return self.api.commit_revert(session=self.id)

    def revert_info(self) -> Optional[RevertInfo]:
        """Returns the revert that is not final yet, if there is one."""
        return self._place.run(self._revert_info())

    def diff(self) -> "list[wire.FileDiff]":
        """Returns the files that the session changed, with both texts, without undone changes."""
        return self._place.run(self._diff())

    def steps(self) -> "list[wire.StepRecord]":
        """Returns the steps, oldest first."""
        return self._place.run(self._steps())

    def timeline(self, before: Optional[str] = None) -> wire.Log:
        """Returns the recorded operations, newest first. Pass `next` as `before` for the next page."""
        return self.api.timeline(session=self.id, before=before)

    def checkpoint(self, label: Optional[str] = None) -> Optional[wire.CheckpointMade]:
        """Creates a checkpoint of the current state."""
        made = self.api.checkpoint(session=self.id, label=label)
        return made if isinstance(made, wire.CheckpointMade) else None

    def fork(
        self, at: Optional[str] = None, *, into: Optional[AnyPath] = None, id: Optional[str] = None
    ) -> wire.Fork:
        """Creates a session that shares the history of this one, with `into` in another directory."""
        return self.api.fork(session=self.id, at=at, into=into, id=id)

    def release(self) -> None:
        """Releases the session, so that its snapshots may be dropped."""
        self.api.release_session(session=self.id)


class AsyncSession(_Base):
    """:class:`Session` for asyncio."""

    @property
    def api(self) -> AsyncApi:
        """All methods of the server, for this work tree."""
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
        """Creates a step for `async with session.step(message="m1"): ...`."""
        about = _about(
            message=message, part=part, tool=tool, label=label, paths=list(paths), parent=parent,
            who=who, detached=detached,
        )  # fmt: skip
        return AsyncStep(self._place, self._begin(about))

    async def plan_undo(
        self, scope: Optional[wire.Scope] = None, *, paths: Sequence[AnyPath] = ()
    ) -> wire.UndoReport:
        """Returns what `undo` would do now, without changing any file."""
        return await self.api.plan_undo(session=self.id, scope=scope, paths=paths)

    async def undo(
        self,
        scope: Optional[wire.Scope] = None,
        *,
        paths: Sequence[AnyPath] = (),
        force: bool = False,
        plan: Optional[str] = None,
    ) -> wire.UndoReport:
        """Undoes steps, by default the newest turn, and keeps later changes by others."""
        return await self.api.undo(
            session=self.id, scope=scope, paths=paths, force=force, plan=plan
        )

    async def redo(self) -> wire.UndoReport:
        """Reverses the last undo or revert."""
        return await self.api.redo(session=self.id)

    async def revert(self, message: str, part: Optional[str] = None) -> Optional[RevertInfo]:
        """Reverts the session to before a message, or a part of it, until it is committed."""
        return await self._place.run_async(self._revert(message, part))

    async def unrevert(self) -> wire.UndoReport:
        """Reverses the revert and keeps later changes by others."""
        return await self.api.unrevert(session=self.id)

    async def commit_revert(self) -> wire.RevertState:
        """Makes the revert final, and returns the messages that it removed."""
        return await self.api.commit_revert(session=self.id)

    async def revert_info(self) -> Optional[RevertInfo]:
        """Returns the revert that is not final yet, if there is one."""
        return await self._place.run_async(self._revert_info())

    async def diff(self) -> "list[wire.FileDiff]":
        """Returns the files that the session changed, with both texts, without undone changes."""
        return await self._place.run_async(self._diff())

    async def steps(self) -> "list[wire.StepRecord]":
        """Returns the steps, oldest first."""
        return await self._place.run_async(self._steps())

    async def timeline(self, before: Optional[str] = None) -> wire.Log:
        """Returns the recorded operations, newest first. Pass `next` as `before` for the next page."""
        return await self.api.timeline(session=self.id, before=before)

    async def checkpoint(self, label: Optional[str] = None) -> Optional[wire.CheckpointMade]:
        """Creates a checkpoint of the current state."""
        made = await self.api.checkpoint(session=self.id, label=label)
        return made if isinstance(made, wire.CheckpointMade) else None

    async def fork(
        self, at: Optional[str] = None, *, into: Optional[AnyPath] = None, id: Optional[str] = None
    ) -> wire.Fork:
        """Creates a session that shares the history of this one, with `into` in another directory."""
        return await self.api.fork(session=self.id, at=at, into=into, id=id)

    async def release(self) -> None:
        """Releases the session, so that its snapshots may be dropped."""
        await self.api.release_session(session=self.id)
