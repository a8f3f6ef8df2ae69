"""Builds the package (PEP 517 and 660) with the standard library only.

`pip wheel . --config-settings binary=../../target/release/ctrlz` includes the program in the wheel, which is then
specific to this platform. `--config-settings platform=manylinux_2_28_x86_64` sets another platform tag. Without
`binary`, the wheel is pure Python.
"""

import base64
import hashlib
import io
import re
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Optional

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
#: Fixed timestamp, for reproducible wheels.
EPOCH = (2020, 1, 1, 0, 0, 0)


def get_requires_for_build_wheel(settings: Optional["dict[str, Any]"] = None) -> "list[str]":
    return []


get_requires_for_build_sdist = get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(
    wheel_directory: str,
    settings: Optional["dict[str, Any]"] = None,
    metadata_directory: Optional[str] = None,
) -> str:
    binary = (settings or {}).get("binary")
    platform = (settings or {}).get("platform") or this_platform()
    files = {str(path.relative_to(SOURCE)): (path.read_bytes(), 0o644) for path in sources()}
    if binary:
        files["ctrlz/_bin/ctrlz"] = (Path(binary).read_bytes(), 0o755)
    return write_wheel(Path(wheel_directory), platform if binary else "any", files)


def build_editable(
    wheel_directory: str,
    settings: Optional["dict[str, Any]"] = None,
    metadata_directory: Optional[str] = None,
) -> str:
    files = {"ctrlz.pth": (f"{SOURCE}\n".encode(), 0o644)}
    return write_wheel(Path(wheel_directory), "any", files)


def build_sdist(sdist_directory: str, settings: Optional["dict[str, Any]"] = None) -> str:
    top = f"ctrlz-{field('version')}"
    names = ["pyproject.toml", "README.md", "build_backend/wheel.py"]
    files = {name: (ROOT / name).read_bytes() for name in names}
    files.update({str(path.relative_to(ROOT)): path.read_bytes() for path in sources()})
    files["PKG-INFO"] = metadata().encode()
    archive = Path(sdist_directory) / f"{top}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in files:
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mode = len(files[name]), 0o644
            tar.addfile(info, io.BytesIO(files[name]))
    return archive.name


def sources() -> "list[Path]":
    kept = (path for path in (SOURCE / "ctrlz").rglob("*") if path.is_file())
    return sorted(path for path in kept if path.suffix == ".py" or path.name == "py.typed")


def this_platform() -> str:
    return re.sub(r"[.-]", "_", sysconfig.get_platform())


def write_wheel(directory: Path, platform: str, files: "dict[str, tuple[bytes, int]]") -> str:
    name, tag = f"ctrlz-{field('version')}", f"py3-none-{platform}"
    info = f"{name}.dist-info"
    pure = "true" if platform == "any" else "false"
    wheel = f"Wheel-Version: 1.0\nGenerator: ctrlz\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    files[f"{info}/METADATA"] = (metadata().encode(), 0o644)
    files[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    record = "".join(record_line(path, content) for path, (content, _) in files.items())
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    target = directory / f"{name}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, (content, mode) in files.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content)
    return target.name


def record_line(path: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}\n"


def metadata() -> str:
    head = {
        "Metadata-Version": "2.4",
        "Name": field("name"),
        "Version": field("version"),
        "Summary": field("description"),
        "Requires-Python": field("requires-python"),
        "License-Expression": field("license"),
        "Description-Content-Type": "text/markdown",
    }
    lines = "".join(f"{key}: {value}\n" for key, value in head.items())
    return f"{lines}\n{(ROOT / 'README.md').read_text()}"


def field(name: str) -> str:
    """Returns a string of pyproject.toml. Python has a TOML parser only since 3.11."""
    found = re.search(rf'^{name} = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    if not found:
        raise ValueError(f"pyproject.toml has no {name}")
    return found[1]
