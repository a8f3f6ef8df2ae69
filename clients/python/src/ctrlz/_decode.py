"""Conversion between JSON and the dataclasses of :mod:`ctrlz.wire`."""

import dataclasses
from functools import lru_cache
from typing import Any, Callable, Union, get_args, get_origin, get_type_hints

Decoder = Callable[[Any], Any]


def decode(kind: Any, value: Any) -> Any:
    """Decodes a value of this type. Unknown fields of a newer server are ignored."""
    return decoder(kind)(value)


def encode(value: Any) -> Any:
    """Encodes a value as JSON. Optional fields are omitted if they are ``None``."""
    if isinstance(value, list):
        return [encode(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
    return {
        _key(field): encode(item)
        for field, item in fields
        if item is not None or field.default is dataclasses.MISSING
    }


@lru_cache(maxsize=None)
def decoder(kind: Any) -> Decoder:
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    if get_origin(kind) is list:
        item = decoder(get_args(kind)[0])
        return lambda value: [item(inner) for inner in value]
    if get_origin(kind) is Union:
        return _union(get_args(kind))
    return lambda value: value


def _dataclass(kind: Any) -> Decoder:
    hints = get_type_hints(kind)
    parts = [
        (field.name, _key(field), decoder(hints[field.name]), field.default is dataclasses.MISSING)
        for field in dataclasses.fields(kind)
    ]

    def read(value: Any) -> Any:
        return kind(
            **{name: part(value[key]) for name, key, part, needed in parts if needed or key in value}
        )

    return read


def _union(kinds: "tuple[Any, ...]") -> Decoder:
    classes: list[Any] = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    lists = [decoder(kind) for kind in kinds if get_origin(kind) is list]
    choices = [(_required(kind), decoder(kind)) for kind in classes]

    def read(value: Any) -> Any:
        if isinstance(value, list) and lists:
            return lists[0](value)
        if isinstance(value, dict):
            for required, choice in choices:
                if required <= value.keys():
                    return choice(value)
        return value

    return read


def _required(kind: Any) -> "frozenset[str]":
    fields = dataclasses.fields(kind)
    return frozenset(_key(field) for field in fields if field.default is dataclasses.MISSING)


def _key(field: "dataclasses.Field[Any]") -> str:
    """Returns the name on the wire. `from` is a keyword in Python, so its field is `from_`."""
    return field.name.rstrip("_")
