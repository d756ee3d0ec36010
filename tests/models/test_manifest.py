from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from sharpen.models.manifest import MANIFEST, file_digests, sync_folder, verify_manifest, write_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.txt").write_bytes(b"abc")
    (tmp_path / "inner" / "b.bin").write_bytes(bytes(range(256)))
    write_manifest(tmp_path)
    sync_folder(tmp_path)
    return tmp_path


def test_the_digests_are_sha256_by_relative_path(folder: Path) -> None:
    assert file_digests(folder) == {
        # The published test vector of SHA-256 for "abc".
        "a.txt": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "inner/b.bin": hashlib.sha256(bytes(range(256))).hexdigest(),
    }


def test_an_untouched_folder_has_no_faults_and_a_new_file_is_none(folder: Path) -> None:
    assert verify_manifest(folder) == []
    (folder / "notes.txt").write_text("mine")
    assert verify_manifest(folder) == []


def test_every_fault_is_named(folder: Path) -> None:
    (folder / "inner" / "b.bin").write_bytes(bytes(255) + b"\x01")
    (folder / "a.txt").unlink()
    assert verify_manifest(folder) == ["a.txt is missing", "inner/b.bin has changed"]


@pytest.mark.parametrize(("text", "fault"), [(None, "is missing"), ('{"sha256": {"a.t', "cannot be read"), ("[]", "cannot be read")])
def test_a_missing_or_cut_manifest_is_a_fault(folder: Path, text: str | None, fault: str) -> None:
    if text is None:
        (folder / MANIFEST).unlink()
    else:
        (folder / MANIFEST).write_text(text)
    assert verify_manifest(folder) == [f"{MANIFEST} {fault}"]
