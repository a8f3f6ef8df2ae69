"""Conversion of paths between Python and the wire.

On the wire, a path that is not UTF-8 is ``{"bytes": [...]}``. In Python it is a ``str`` in the form of ``os.fsdecode``:
invalid bytes are lone surrogates. It can be passed to ``open`` and back to the server unchanged.
"""

import os
from typing import Any, Union

#: Types that are accepted as a path.
AnyPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def to_wire(value: Any) -> Any:
    """Converts a value for the wire, and drops ``None`` in dictionaries."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (bytes, os.PathLike)):
        raw = os.fspath(value)
        return _text(raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw)
    if isinstance(value, dict):
        return {key: to_wire(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_wire(item) for item in value]
    return value


def _text(text: str) -> Any:
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return {"bytes": list(text.encode("utf-8", "surrogateescape"))}


def from_wire(value: "dict[str, Any]") -> Any:
    """Object hook for ``json.loads`` that decodes paths that are not UTF-8."""
    raw = value.get("bytes")
    if len(value) == 1 and isinstance(raw, list):
        return bytes(raw).decode("utf-8", "surrogateescape")
    return value
