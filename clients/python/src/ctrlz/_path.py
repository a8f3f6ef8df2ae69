"""Paths as Python has them and as the wire has them.

On the wire a path that is not UTF-8 is ``{"bytes": [...]}``. Here it is a ``str`` as ``os.fsdecode`` makes it, with
the bytes that do not fit as lone surrogates, so it can be used with ``open`` and handed back as it is.
"""

import os
from typing import Any, Union

#: What is taken for a path.
AnyPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def to_wire(value: Any) -> Any:
    """A value for the wire, without what is ``None``."""
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
    """For ``json.loads``: the object of a path that is not UTF-8 becomes that path."""
    raw = value.get("bytes")
    if len(value) == 1 and isinstance(raw, list):
        return bytes(raw).decode("utf-8", "surrogateescape")
    return value
