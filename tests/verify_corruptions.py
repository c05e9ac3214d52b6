"""A good wheel in miniature and single corruptions of it, each with the check that has to see it.

The wheel is fat: an extension module, two libraries with device code (plain and compressed), the HIP runtime, rocBLAS
with its lazy data for two GPUs, MIOpen with its databases.
"""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rocm_wheels.wheel.record import digest
from tests.elf_fixtures import bundle, code, compressed, make_library

ARCHS = ("gfx1030", "gfx1100")
PYTHON = f"{sys.version_info.major}{sys.version_info.minor}"  # so that installers of this environment take the wheel
NAME, VERSION, TAG = "minitorch", "1.0+rocm5.7", f"cp{PYTHON}-cp{PYTHON}-manylinux_2_41_x86_64"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LIB = "minitorch/lib"
CORE, TOP, HIP, BLAS = (f"{LIB}/{n}" for n in ("libcore.so", "libtop.so", "libamdhip64.so.5", "librocblas.so.4"))
EXTENSION = f"minitorch/_C.cpython-{PYTHON}-x86_64-linux-gnu.so"
DATA = f"{LIB}/rocblas/library"
MACHS = {"gfx1030": 0x36, "gfx1100": 0x41}
Files = dict[str, bytes]


def true_bundle(archs: Iterable[str] = ARCHS) -> bytes:
    """A bundle whose code objects carry the flags of their targets."""
    plain = bundle(archs, payload=code(0))
    position = 0
    for arch in archs:
        position = plain.index(b"\x7fELF", position) + 1
        plain = plain[: position + 47] + struct.pack("<I", MACHS.get(arch, 0x36)) + plain[position + 51 :]
    return plain


@dataclass
class Parts:
    """What a wheel is made of; a corruption changes one thing of it."""

    files: Files
    metadata: list[str] = field(
        default_factory=lambda: ["Metadata-Version: 2.1", f"Name: {NAME}", f"Version: {VERSION}"]
    )
    wheel: list[str] = field(
        default_factory=lambda: ["Wheel-Version: 1.0", "Generator: test", "Root-Is-Purelib: false", f"Tag: {TAG}"]
    )
    name: str = NAME
    version: str = VERSION
    tag: str = TAG
    modes: dict[str, int] = field(default_factory=dict)
    stored: frozenset[str] = frozenset()
    record: Callable[[list[str]], list[str]] = lambda rows: rows
    without: frozenset[str] = frozenset()
    info: str = ""

    def write(self, folder: Path) -> Path:
        """The wheel."""
        info = self.info or f"{self.name}-{self.version}.dist-info"
        members = {name.replace("INFO/", f"{info}/"): data for name, data in self.files.items()}
        members[f"{info}/METADATA"] = ("\n".join(self.metadata) + "\n\nA description.\n").encode()
        members[f"{info}/WHEEL"] = ("\n".join(self.wheel) + "\n").encode()
        rows = [f"{name},{digest(data)},{len(data)}" for name, data in members.items()]
        members[f"{info}/RECORD"] = "".join(f"{r}\n" for r in self.record([*rows, f"{info}/RECORD,,"])).encode()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}-{self.version}-{self.tag}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                if name.rpartition("/")[2] in self.without:
                    continue
                entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_STORED if name in self.stored else zipfile.ZIP_DEFLATED
                entry.external_attr = self.modes.get(name, 0o100755 if ".so" in name else 0o100644) << 16
                archive.writestr(entry, data)
        return path


def good_files(folder: Path) -> Files:
    """The files of the good wheel, compiled in ``folder``."""
    hip = make_library(
        folder,
        "libamdhip64.so.5",
        versions={"hip_5.0": "libamdhip64_so_5", "hip_5.7": "newer"},
        code="int libamdhip64_so_5(void) { return 1; }\nint newer(void) { return 2; }",
    )
    blas = make_library(folder, "librocblas.so.4", needs=[hip], new_dtags=False, rpath="$ORIGIN")
    miopen = make_library(folder, "libMIOpen.so.1", needs=[hip], new_dtags=False, rpath="$ORIGIN")
    uses = "extern int libamdhip64_so_5(void); int libcore_so(void) { return libamdhip64_so_5(); }"
    core = make_library(
        folder,
        "libcore.so",
        needs=[hip],
        new_dtags=False,
        rpath="$ORIGIN",
        code=uses,
        bundles=[true_bundle(), true_bundle()],
    )
    top = make_library(
        folder,
        "libtop.so",
        needs=[core, blas],
        new_dtags=False,
        rpath="$ORIGIN",
        bundles=[compressed(true_bundle(), 3), compressed(true_bundle(), 2)],
    )
    extension = make_library(folder, "_C.so", needs=[top, miopen], new_dtags=False, rpath="$ORIGIN:$ORIGIN/lib")
    files = {
        "minitorch/__init__.py": b"from minitorch import version\n",
        "minitorch/version.py": f"__version__ = {VERSION!r}\ngit_version = {COMMIT!r}\nhip = '5.7.1'\n".encode(),
        EXTENSION: extension.read_bytes(),
        "INFO/licenses/rocm/all.txt": b"The MIT License\n",
        CORE: core.read_bytes(),
        TOP: top.read_bytes(),
        HIP: hip.read_bytes(),
        BLAS: blas.read_bytes(),
        f"{LIB}/libMIOpen.so.1": miopen.read_bytes(),
    }
    for arch in ARCHS:
        part = f"TensileLibrary_Type_SS_Contraction_l_Ailk_Bjlk_Cijk_Dijk_{arch}"
        fallback = "TensileLibrary_Type_DD_Contraction_l_Ailk_Bjlk_Cijk_Dijk_fallback"
        files[f"{DATA}/TensileLibrary_lazy_{arch}.dat"] = f"\x82\xa5{part}\x00\xd9\x41{fallback}\x00".encode("latin-1")
        files[f"{DATA}/{part}.dat"] = f"solutions of {part}".encode()
        files[f"{DATA}/{part}.co"] = f"code of {part}".encode()
        files[f"{DATA}/{fallback}.dat"] = b"solutions"
        files[f"{DATA}/{fallback}_{arch}.hsaco"] = f"fallback for {arch}".encode()
        files[f"{DATA}/Kernels.so-000-{arch}.hsaco"] = f"kernels for {arch}".encode()
        files[f"minitorch/share/miopen/db/{arch}_20.HIP.fdb.txt"] = f"tuned for {arch}".encode()
    return files


@dataclass(frozen=True)
class Corruption:
    """One change: to the parts before they are packed, or to the bytes of the packed wheel."""

    check: str
    name: str
    parts: Callable[[Parts, Path], None] | None = None
    packed: Callable[[bytes], bytes] | None = None

    def __str__(self) -> str:
        return f"{self.check}: {self.name}"


# --- edits of ELF files ---------------------------------------------------------------------------------------------

PT_LOAD, PT_DYNAMIC, PT_PHDR, PT_STACK = 1, 2, 6, 0x6474E551
_FIELDS = {
    "type": (0, "I"),
    "flags": (4, "I"),
    "offset": (8, "Q"),
    "vaddr": (16, "Q"),
    "filesz": (32, "Q"),
    "memsz": (40, "Q"),
    "align": (48, "Q"),
}


def segment(kind: int, name: str, value: int, which: int = 0) -> Callable[[bytes], bytes]:
    """Set a field of the ``which``-th program header of a type."""

    def edit(data: bytes) -> bytes:
        start, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
        places = [start + 56 * i for i in range(count) if struct.unpack_from("<I", data, start + 56 * i)[0] == kind]
        at, layout = _FIELDS[name]
        changed = bytearray(data)
        struct.pack_into(f"<{layout}", changed, places[which] + at, value)
        return bytes(changed)

    return edit


def dynamic(tag: int, new_tag: int | None = None, value: int | None = None) -> Callable[[bytes], bytes]:
    """Change tag or value of the first dynamic entry of a tag."""

    def edit(data: bytes) -> bytes:
        start, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
        headers = [struct.unpack_from("<IIQQQQQQ", data, start + 56 * i) for i in range(count)]
        offset = next(h[2] for h in headers if h[0] == PT_DYNAMIC)
        while (found := struct.unpack_from("<qQ", data, offset))[0] != tag:
            assert found[0], f"no dynamic entry {tag}"
            offset += 16
        changed = bytearray(data)
        struct.pack_into(
            "<qQ", changed, offset, found[0] if new_tag is None else new_tag, found[1] if value is None else value
        )
        return bytes(changed)

    return edit


def field_at(offset: int, layout: str, value: int) -> Callable[[bytes], bytes]:
    """Overwrite a number."""

    def edit(data: bytes) -> bytes:
        changed = bytearray(data)
        struct.pack_into(f"<{layout}", changed, offset, value)
        return bytes(changed)

    return edit


def swapped(old: bytes, new: bytes, count: int = 1) -> Callable[[bytes], bytes]:
    """Replace bytes, which must be there, by as many others."""

    def edit(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new, count)

    return edit


def member(name: str, edit: Callable[[bytes], bytes]) -> Callable[[Parts, Path], None]:
    """Change the content of one file."""

    def change(parts: Parts, _: Path) -> None:
        before = parts.files[name]
        parts.files[name] = edit(before)
        assert parts.files[name] != before

    return change


def without(*names: str) -> Callable[[Parts, Path], None]:
    """Take files out, RECORD being right."""

    def change(parts: Parts, _: Path) -> None:
        for name in names:
            del parts.files[name]

    return change


def without_all(*fragments: str) -> Callable[[Parts, Path], None]:
    """Take out every file whose name has all of ``fragments``."""

    def change(parts: Parts, _: Path) -> None:
        parts.files = {n: d for n, d in parts.files.items() if not all(f in n for f in fragments)}

    return change


def compiled(name: str, **options: object) -> Callable[[Parts, Path], None]:
    """A library of these properties in the place of a file, or as a new one."""

    def change(parts: Parts, folder: Path) -> None:
        made = {k: v(folder) if callable(v) else v for k, v in options.items()}
        path = make_library(folder / "made", name.rpartition("/")[2], **{"new_dtags": False, **made})  # type: ignore[arg-type]
        parts.files[name] = path.read_bytes()

    return change


def stub(name: str, **options: object) -> Callable[[Path], list[Path]]:
    """Something to link with that does not go into the wheel."""
    return lambda folder: [make_library(folder / "stub", name, **options)]  # type: ignore[arg-type]


def header(name: str, value: str | None) -> Callable[[Parts, Path], None]:
    """Set, add or (None) take away a header of METADATA."""

    def change(parts: Parts, _: Path) -> None:
        kept = [line for line in parts.metadata if not line.startswith(f"{name}:") or name == "Requires-Dist"]
        parts.metadata = kept + ([] if value is None else [f"{name}: {value}"])

    return change


def wheel_header(name: str, value: str) -> Callable[[Parts, Path], None]:
    """Set a header of WHEEL."""

    def change(parts: Parts, _: Path) -> None:
        parts.wheel = [f"{name}: {value}" if line.startswith(f"{name}:") else line for line in parts.wheel]

    return change


def setting(**changes: object) -> Callable[[Parts, Path], None]:
    """Set fields of :class:`Parts`."""

    def change(parts: Parts, _: Path) -> None:
        for name, value in changes.items():
            setattr(parts, name, value)

    return change


def added(**files: bytes) -> Callable[[Parts, Path], None]:
    """Add files, ``__`` standing for a slash and ``_dot_`` for a dot."""
    named = {name.replace("__", "/").replace("_dot_", "."): data for name, data in files.items()}
    return lambda parts, _: parts.files.update(named)


def objcopied(name: str, *arguments: str) -> Callable[[Parts, Path], None]:
    """Run objcopy over one file."""

    def change(parts: Parts, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "copy.so"
        path.write_bytes(parts.files[name])
        (folder / "bytes").write_bytes(b"fatbin" * 20)
        subprocess.run(["objcopy", *(a.format(folder=folder) for a in arguments), str(path)], check=True)
        parts.files[name] = path.read_bytes()

    return change


def retagged(policy: str) -> Callable[[Parts, Path], None]:
    """File name and WHEEL promise an older system than one file keeps."""
    code = '#include <stdlib.h>\n#include <math.h>\ndouble f(double x) { return hypot(x, atof(getenv("X"))); }'

    def change(parts: Parts, folder: Path) -> None:
        compiled(f"{LIB}/libm_user.so", code=code, options=["-lm"])(parts, folder)
        parts.tag = TAG.replace("manylinux_2_41", policy)
        wheel_header("Tag", parts.tag)(parts, folder)

    return change


# --- edits of the packed archive ------------------------------------------------------------------------------------


def _locals(data: bytes) -> Iterator[int]:
    at = data.find(b"PK\3\4")
    while at >= 0:
        yield at
        at = data.find(b"PK\3\4", at + 4)


def _second_local(data: bytes) -> int:
    return list(_locals(data))[1]


def zip64_block_without_need(data: bytes) -> bytes:
    """What retagging by the wheel package before 0.48 leaves of entries with ZIP64 blocks (pypa/wheel#692).

    Members are written again with the entries that were read, whose extra fields still have the block of the old file.
    """
    block = struct.pack("<HHQQ", 1, 16, 0, 0)
    again = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(again, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            entry.extra = block if entry.filename.endswith(".so") else b""
            new.writestr(entry, content)
    return again.getvalue()


def at_central(offset: int, layout: str, value: int) -> Callable[[bytes], bytes]:
    """Overwrite a field of the second central entry."""

    def edit(data: bytes) -> bytes:
        first = data.index(b"PK\1\2")
        return field_at(data.index(b"PK\1\2", first + 4) + offset, layout, value)(data)

    return edit


def at_local(offset: int, layout: str, value: int) -> Callable[[bytes], bytes]:
    """Overwrite a field of the second local header."""
    return lambda data: field_at(_second_local(data) + offset, layout, value)(data)


def flipped_content(data: bytes) -> bytes:
    """One bit of a member's compressed bytes."""
    at = list(_locals(data))[4]
    name, extra = struct.unpack_from("<HH", data, at + 26)
    place = at + 30 + name + extra + 40
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
