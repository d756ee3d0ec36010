"""Whether the files of a folder are what they were when it was written: their SHA-256 digests, kept in `manifest.json` beside them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

MANIFEST = "manifest.json"


def file_digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below `folder`, by its path from there, as in `{"config.json": "9f86…"}`; without the manifest itself."""
    return {name: file_digest(folder / name) for name in sorted(_names(folder))}


def file_digest(path: Path) -> str:
    """The SHA-256 of one file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path) -> Path:
    """Write `manifest.json`, the digests of all other files of `folder`, and return its path; the folder is complete when it is called."""
    path = folder / MANIFEST
    path.write_text(json.dumps({"sha256": file_digests(folder)}, indent=2) + "\n")
    return path


def verify_manifest(folder: Path) -> list[str]:
    """What is wrong with `folder` by its manifest, one line a fault, such as `config.json has changed`; empty when all is as written.

    A file that the manifest does not name is no fault.
    """
    try:
        expected = json.loads((folder / MANIFEST).read_text())["sha256"]
    except FileNotFoundError:
        return [f"{MANIFEST} is missing"]
    except (ValueError, KeyError, TypeError):
        return [f"{MANIFEST} cannot be read"]
    faults = []
    for name, digest in expected.items():
        path = folder / name
        if not path.is_file():
            faults.append(f"{name} is missing")
        elif file_digest(path) != digest:
            faults.append(f"{name} has changed")
    return faults


def sync_folder(folder: Path) -> None:
    """Bring every file and folder below `folder`, and itself, to the disk: after it, a crash of the machine loses none of them."""
    for parent, _, files in os.walk(folder, topdown=False):
        for path in [*(Path(parent) / name for name in files), Path(parent)]:
            sync(path)


def sync(path: Path) -> None:
    """Bring one file, or the list of names in one folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _names(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != MANIFEST:
            yield name
