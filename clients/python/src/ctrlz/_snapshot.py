""":class:`Snapshot`: snapshots of a project by hash. :class:`AsyncSnapshot` is the asyncio version."""

import base64
from collections.abc import Sequence
from typing import Optional

from . import wire
from ._client import Ctrlz
from ._path import AnyPath
from ._place import Api, Ask, AsyncApi, Flow, Place, pages

#: Default path of the store: inside the project, and excluded from its snapshots.
DEFAULT_STORE = ".agent/snapshots"


class _Base:
    def __init__(
        self,
        project_dir: AnyPath,
        *,
        data_dir: Optional[AnyPath] = None,
        store: Optional[AnyPath] = None,
        work_tree: wire.WorkTree = "dir",
        profile: Optional[wire.Profile] = None,
        options: Optional[wire.CallOptions] = None,
        client: Optional[Ctrlz] = None,
        timeout: Optional[float] = None,
    ) -> None:
        """
        project_dir: Directory of the project. Nothing is created before the first call.
        data_dir: Directory of all stores, as on the command line, instead of a store in the project.
        store: Path of the store. Default: `.agent/snapshots` in the project.
        work_tree: `dir`: exactly this directory. `nearest`: the repository that contains it.
        profile: `opencode`.
        options: Options such as `exclude`, `require_git` or `max_new_file_bytes`.
        client: Client to use. Default: `Ctrlz.shared()`.
        timeout: Time limit of a call in seconds.
        """
        if store is None and data_dir is None:
            store = DEFAULT_STORE
        self._place = Place(
            project_dir,
            data_dir=data_dir,
            store=store,
            work_tree=work_tree,
            profile=profile,
            options=options,
            client=client,
            timeout=timeout,
        )


class Snapshot(_Base):
    """Records the state of a project and restores it.

    Errors are raised as :class:`ctrlz.CtrlzError`. If snapshots are disabled, hashes are empty.
    """

    @property
    def api(self) -> Api:
        """All methods of the server, for this project."""
        return Api(self._place)

    def track(self, paths: Sequence[AnyPath] = (), *, rehash: bool = False) -> str:
        """Records the project, or only some paths, and returns the hash."""
        return self._place.run(_track(paths, rehash))

    def patch(self, from_hash: str, to_hash: Optional[str] = None) -> "list[str]":
        """Returns the relative paths that changed between a snapshot and now, or another snapshot."""
        return self._place.run(_patch(from_hash, to_hash))

    def revert(self, hash: str, files: Sequence[AnyPath]) -> Optional[wire.RestoreReport]:
        """Restores single files. Files that did not exist in the snapshot are removed."""
        return self._place.run(_revert(hash, files))

    def restore(
        self, hash: str, *, exact: bool = False, paths: Sequence[AnyPath] = ()
    ) -> Optional[wire.RestoreReport]:
        """Restores all files, and keeps files created since unless `exact` is set."""
        return self._place.run(_restore(hash, exact, paths))

    def diff(self, from_hash: str, to_hash: Optional[str] = None) -> str:
        """Returns the difference as a patch that `git apply` accepts. Invalid UTF-8 is replaced."""
        return self._place.run(_diff(from_hash, to_hash))

    def diff_full(self, from_hash: str, to_hash: Optional[str] = None) -> "list[wire.FileDiff]":
        """Returns every changed file with both texts and line counts."""
        return self._place.run(_diff_full(from_hash, to_hash))

    def get_file_at(self, hash: str, path: AnyPath) -> Optional[str]:
        """Returns the text of a file in a snapshot; `None` if the snapshot does not contain it."""
        return _as_text(self.get_bytes_at(hash, path))

    def get_bytes_at(self, hash: str, path: AnyPath) -> Optional[bytes]:
        """Returns the content of a file in a snapshot; `None` if the snapshot does not contain it."""
        return self._place.run(_bytes_at(hash, path))

    def list_files(self, hash: str) -> "list[str]":
        """Returns the paths in a snapshot, sorted, relative to the project."""
        return self._place.run(_list_files(hash))

    def file_exists_at(self, hash: str, path: AnyPath) -> bool:
        """Whether a snapshot contains a file."""
        return self._place.run(_file_exists_at(hash, path))


class AsyncSnapshot(_Base):
    """:class:`Snapshot` for asyncio."""

    @property
    def api(self) -> AsyncApi:
        """All methods of the server, for this project."""
        return AsyncApi(self._place)

    async def track(self, paths: Sequence[AnyPath] = (), *, rehash: bool = False) -> str:
        """Records the project, or only some paths, and returns the hash."""
        return await self._place.run_async(_track(paths, rehash))

    async def patch(self, from_hash: str, to_hash: Optional[str] = None) -> "list[str]":
        """Returns the relative paths that changed between a snapshot and now, or another snapshot."""
        return await self._place.run_async(_patch(from_hash, to_hash))

    async def revert(self, hash: str, files: Sequence[AnyPath]) -> Optional[wire.RestoreReport]:
        """Restores single files. Files that did not exist in the snapshot are removed."""
        return await self._place.run_async(_revert(hash, files))

    async def restore(
        self, hash: str, *, exact: bool = False, paths: Sequence[AnyPath] = ()
    ) -> Optional[wire.RestoreReport]:
        """Restores all files, and keeps files created since unless `exact` is set."""
        return await self._place.run_async(_restore(hash, exact, paths))

    async def diff(self, from_hash: str, to_hash: Optional[str] = None) -> str:
        """Returns the difference as a patch that `git apply` accepts. Invalid UTF-8 is replaced."""
        return await self._place.run_async(_diff(from_hash, to_hash))

    async def diff_full(self, from_hash: str, to_hash: Optional[str] = None) -> "list[wire.FileDiff]":
        """Returns every changed file with both texts and line counts."""
        return await self._place.run_async(_diff_full(from_hash, to_hash))

    async def get_file_at(self, hash: str, path: AnyPath) -> Optional[str]:
        """Returns the text of a file in a snapshot; `None` if the snapshot does not contain it."""
        return _as_text(await self.get_bytes_at(hash, path))

    async def get_bytes_at(self, hash: str, path: AnyPath) -> Optional[bytes]:
        """Returns the content of a file in a snapshot; `None` if the snapshot does not contain it."""
        return await self._place.run_async(_bytes_at(hash, path))

    async def list_files(self, hash: str) -> "list[str]":
        """Returns the paths in a snapshot, sorted, relative to the project."""
        return await self._place.run_async(_list_files(hash))

    async def file_exists_at(self, hash: str, path: AnyPath) -> bool:
        """Whether a snapshot contains a file."""
        return await self._place.run_async(_file_exists_at(hash, path))


def _track(paths: Sequence[AnyPath], rehash: bool) -> "Flow[str]":
    result = yield Ask("track", {"paths": list(paths), "rehash": rehash})
    found: str = result.hash
    return found


def _patch(from_hash: str, to_hash: Optional[str]) -> "Flow[list[str]]":
    result = yield Ask("patch", {"hash": from_hash, "to": to_hash or None, "relative": True})
    return [] if isinstance(result, wire.Disabled) else list(result.files)


def _revert(hash: str, files: Sequence[AnyPath]) -> "Flow[Optional[wire.RestoreReport]]":
    if not hash:
        return None
    result = yield Ask("revert", {"patches": [{"hash": hash, "files": list(files)}]})
    return _report(result)


def _restore(
    hash: str, exact: bool, paths: Sequence[AnyPath]
) -> "Flow[Optional[wire.RestoreReport]]":
    result = yield Ask("restore", {"hash": hash, "exact": exact, "paths": list(paths)})
    return _report(result)


def _report(result: object) -> Optional[wire.RestoreReport]:
    return result if isinstance(result, wire.RestoreReport) else None


def _diff(from_hash: str, to_hash: Optional[str]) -> "Flow[str]":
    found = yield from pages("diff", {"from": from_hash, "to": to_hash or None})
    return "".join(page.text for page in found)


def _diff_full(from_hash: str, to_hash: Optional[str]) -> "Flow[list[wire.FileDiff]]":
    found = yield from pages("diff_full", {"from": from_hash, "to": to_hash or None})
    return [file for page in found for file in page.files]


def _bytes_at(hash: str, path: AnyPath) -> "Flow[Optional[bytes]]":
    parts: list[bytes] = []
    offset: Optional[int] = 0
    while offset is not None:
        result = yield Ask("get_file_at", {"hash": hash, "path": path, "offset": offset})
        if isinstance(result, wire.Disabled) or result.file is None:
            return None
        file: wire.FileContent = result.file
        is_text = file.encoding == "utf-8"
        parts.append(file.content.encode() if is_text else base64.b64decode(file.content))
        offset = file.next
    return b"".join(parts)


def _as_text(content: Optional[bytes]) -> Optional[str]:
    return None if content is None else content.decode("utf-8", "surrogateescape")


def _list_files(hash: str) -> "Flow[list[str]]":
    found = yield from pages("list_files", {"hash": hash})
    return [file.path for page in found for file in page.files]


def _file_exists_at(hash: str, path: AnyPath) -> "Flow[bool]":
    result = yield Ask("file_exists_at", {"hash": hash, "path": path})
    return isinstance(result, wire.Exists) and result.exists
