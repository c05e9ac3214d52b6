"""ELF files with chosen properties, made by gcc, and offload bundles, made by hand."""

from __future__ import annotations

import struct
import subprocess
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import zstandard

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
HOST = "host-x86_64-unknown-linux--"


def make_library(
    folder: Path,
    name: str,
    *,
    code: str = "",
    soname: str | None = None,
    needs: Sequence[Path] = (),
    rpath: str | None = None,
    new_dtags: bool = True,
    versions: Mapping[str, str] | None = None,
    bundles: Sequence[bytes] = (),
    options: Sequence[str] = (),
) -> Path:
    """A shared library ``folder/name``. ``versions`` maps a version node to its symbol; ``bundles`` are device code."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = "".join(c if c.isalnum() else "_" for c in name)
    source = folder / f"{stem}.c"
    text = code or f"int {stem}(void) {{ return 1; }}"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(folder / name)]
    if bundles:
        (folder / f"{stem}.fatbin").write_bytes(section_bytes(bundles))
        text += _fatbin(folder / f"{stem}.fatbin", len(bundles))
    source.write_text(text + "\n")
    command += [str(source), *map(str, needs), "-Wl,--no-as-needed"]
    command.append(f"-Wl,-soname,{soname or name}")  # without one a path would become the needed name
    if rpath is not None:
        command += [f"-Wl,-rpath,{rpath}", f"-Wl,--{'enable' if new_dtags else 'disable'}-new-dtags"]
    if versions:
        script = folder / f"{stem}.map"
        script.write_text("".join(f"{node} {{ global: {symbol}; }};\n" for node, symbol in versions.items()))
        command.append(f"-Wl,--version-script={script}")
    # What is linked must be asked for even when nothing is used: place the libraries after --no-as-needed.
    command = [w for w in command if w not in map(str, needs)] + [*map(str, needs), *options]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return folder / name


def _fatbin(file: Path, count: int) -> str:
    return f"""
__asm__(".section .hip_fatbin,\\"a\\",@progbits\\n.p2align 12\\n.incbin \\"{file}\\"\\n.previous");
__attribute__((section(".hipFatBinSegment"), used)) static const char wrappers[{count * 24}] = {{1}};
"""


def section_bytes(bundles: Iterable[bytes]) -> bytes:
    """Bundles one after another, each on a page boundary."""
    data = b""
    for bundle in bundles:
        data += bytes(-len(data) % 4096) + bundle
    return data


def bundle(
    archs: Iterable[str],
    *,
    payload: bytes = b"\x7fELF code",
    empty: Iterable[str] = (),
    own: Mapping[str, bytes] | None = None,
    align: int = 1,
) -> bytes:
    """A plain bundle with a code object per arch: ``payload``, or its own from ``own``; ``empty`` ones have size 0."""
    objects = {arch: b"" if arch in set(empty) else (own or {}).get(arch, payload) for arch in archs}
    names = [HOST, *(f"hipv4-amdgcn-amd-amdhsa--{arch}" for arch in objects)]
    position = 32 + sum(24 + len(name) for name in names)
    head, body = MAGIC + struct.pack("<Q", len(names)), b""
    for name, content in zip(names, [b"", *objects.values()], strict=True):
        padding = -position % align
        head += struct.pack("<QQQ", position + padding, len(content), len(name)) + name.encode()
        if content:
            body += bytes(padding) + content
            position += padding + len(content)
    return head + body


def code(flags: int) -> bytes:
    """The ELF header of a code object (machine 224) with these flags, and some bytes."""
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1\x40\3", 3, 224, 1, 0, 0, 0, flags, 64, 56, 0, 64, 0, 0)
    return head + bytes(64)


def compressed(plain: bytes, version: int, method: str = "zstd") -> bytes:
    """A compressed bundle (CCOB) of one of the versions that clang has written."""
    packed = zstandard.ZstdCompressor().compress(plain) if method == "zstd" else zlib.compress(plain)
    head = b"CCOB" + struct.pack("<HH", version, 1 if method == "zstd" else 0)
    size = len(plain)
    if version == 1:
        return head + struct.pack("<IQ", size, 0) + packed
    if version == 2:
        return head + struct.pack("<IIQ", 24 + len(packed), size, 0) + packed
    return head + struct.pack("<QQQ", 32 + len(packed), size, 0) + packed
