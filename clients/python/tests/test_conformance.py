"""The conformance suite of all clients. clients/conformance/README.md describes the vectors."""

import base64
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from ctrlz import Ctrlz, RpcError, encode
from ctrlz._path import to_wire

FOLDER = Path(__file__).resolve().parents[2] / "conformance"
VOLATILE = frozenset(json.loads((FOLDER / "volatile.json").read_text()))
VECTORS = sorted((FOLDER / "vectors").glob("*.json"))
ID = re.compile("[0-9A-HJKMNP-TV-Z]{26}")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda path: path.stem)
def test_a_vector_returns_the_expected_results(vector: Path, tmp_path: Path, client: Ctrlz) -> None:
    runner = Runner(client, tmp_path.resolve())
    found = list(runner.run(json.loads(vector.read_text())["steps"]))
    wanted = vector.with_suffix(".expected.jsonl").read_text().splitlines()
    for at, (line, expected) in enumerate(zip(found, wanted)):
        assert line == expected, f"line {at + 1} of {vector.stem}"
    assert len(found) == len(wanted)


class Runner:
    def __init__(self, client: Ctrlz, lab: Path) -> None:
        self.client = client
        self.lab = str(lab)
        self.tree = lab / "tree"
        self.tree.mkdir()
        self.names: dict[str, Any] = {}
        self.ids: list[str] = []

    def run(self, steps: "list[Any]") -> Iterator[str]:
        for step in steps:
            line = self.take(step)
            if line is not None:
                text = json.dumps(self.plain("", line), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                yield text

    def take(self, step: Any) -> Any:
        if "call" in step:
            return self.call(step["call"], step["params"], step.get("as"))
        (kind,) = {"write", "remove", "symlink", "mode", "read"} & step.keys()
        path = os.path.join(os.fsencode(self.tree), raw(step[kind]))
        if kind == "write":
            os.makedirs(os.path.dirname(path), exist_ok=True)
            content = base64.b64decode(step["base64"]) if "base64" in step else step["text"].encode()
            Path(os.fsdecode(path)).write_bytes(content)
        elif kind == "remove":
            os.remove(path)
        elif kind == "symlink":
            os.symlink(step["target"], path)
        elif kind == "mode":
            os.chmod(path, step["bits"])
        else:
            there = os.path.exists(path)
            found = base64.b64encode(Path(os.fsdecode(path)).read_bytes()).decode() if there else None
            return {"read": step["read"], "base64": found}
        return None

    def call(self, method: str, params: Any, name: Optional[str]) -> Any:
        given = {"dir": f"{self.lab}/tree", "data_dir": f"{self.lab}/data", **self.filled(params)}
        try:
            result = as_json(encode(self.client.call(method, given)))
        except RpcError as error:
            about = {"hint": error.hint, "path": error.path, "details": error.details or None}
            known = {"kind": error.kind, "fault": error.fault, "message": str(error), **about}
            return {"call": method, "error": as_json({key: it for key, it in known.items() if it is not None})}
        if name:
            self.names[name] = result
        return {"call": method, "result": result}

    def filled(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("$LAB"):
            return value.replace("$LAB", self.lab, 1)
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        if isinstance(value, dict) and "$" in value:
            name, *rest = value["$"].split(".")
            found = self.names[name]
            for part in rest:
                found = found[int(part)] if isinstance(found, list) else found[part]
            return found
        if isinstance(value, dict):
            return {key: self.filled(item) for key, item in value.items()}
        return value

    def plain(self, key: str, value: Any) -> Any:
        if key in VOLATILE and value is not None:
            return "*"
        if isinstance(value, str) and ID.fullmatch(value):
            if value not in self.ids:
                self.ids.append(value)
            return f"<id {self.ids.index(value) + 1}>"
        if isinstance(value, str):
            return value.replace(self.lab, "$LAB")
        if isinstance(value, list):
            return [self.plain("", item) for item in value]
        if isinstance(value, dict):
            return {key: self.plain(key, value[key]) for key in sorted(value)}
        return value


def raw(path: Any) -> bytes:
    return path.encode() if isinstance(path, str) else bytes(path["bytes"])


def as_json(value: Any) -> Any:
    """Converts all strings with `to_wire`, but keeps null values."""
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    return to_wire(value)
