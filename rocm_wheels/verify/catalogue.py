"""All checks, one entry each; `invoke explain ID` prints an entry and docs/verify.md lists them."""

from __future__ import annotations

from rocm_wheels.errors import UnknownCheck, nearest
from rocm_wheels.verify.model import Check, Severity

_E, _W = Severity.ERROR, Severity.WARNING

# id, group, severity, what, why, remedy
_ROWS: tuple[tuple[str, str, Severity, str, str, str], ...] = (
    (
        "archive-broken",
        "archive",
        _E,
        "The zip archive is sound by every reader's rules.",
        "pip accepts archives that uv refuses or reads differently (bad ZIP64 headers, duplicate or unsafe names).",
        "write the wheel again: invoke repair --mode retag",
    ),
    (
        "record",
        "archive",
        _E,
        "RECORD lists every file once with its true hash and size.",
        "strict installers refuse the wheel; pip and uv install the changed file without a word.",
        "write the wheel again from files that you trust",
    ),
    (
        "record-unhashed",
        "archive",
        _W,
        "Every row of RECORD has a hash.",
        "nobody can tell later whether such a file was changed.",
        "rebuild with a current wheel writer",
    ),
    (
        "metadata",
        "archive",
        _E,
        "METADATA and WHEEL exist and agree with the file name.",
        "installers and indexes take name, version and tags from different ones of the three.",
        "invoke repair --mode retag, or rebuild",
    ),
    (
        "licence",
        "archive",
        _E,
        "Licence files that METADATA names exist.",
        "bundled libraries may be handed out only with their licence texts.",
        "rebuild with the files included",
    ),
    ("elf-broken", "elf", _E, "Every ELF file can be read.", "the loader would refuse it.", "rebuild the file"),
    (
        "layout",
        "elf",
        _E,
        "Program headers are such as every loader accepts.",
        "patchelf 0.17.2 and 0.18.0, or strip after patchelf, leave files that crash elsewhere.",
        "repair the original wheel again with patchelf 0.19 or newer; never strip after an edit",
    ),
    (
        "exec-stack",
        "elf",
        _E,
        "No file asks for an executable stack.",
        "glibc 2.41 and newer refuse to load it.",
        "invoke repair clears the flag",
    ),
    (
        "absolute-rpath",
        "elf",
        _E,
        "RPATHs do not name directories of the build host.",
        "the library is found on the builder only, or in a directory that somebody else can write.",
        "invoke repair --mode rpath",
    ),
    (
        "empty-rpath",
        "elf",
        _E,
        "No RPATH has an empty element.",
        "the loader takes it for the current directory: anybody's file there is loaded.",
        "invoke repair --mode rpath",
    ),
    (
        "system-rpath",
        "elf",
        _W,
        "RPATHs name no system directory such as /opt/rocm.",
        "the file loads whatever version lies there, before or instead of the one it was built for.",
        "invoke repair --mode rpath, or accept it for an external ROCm",
    ),
    (
        "version-needs",
        "elf",
        _E,
        "Files of version needs are among the needed files.",
        "the loader stops with an assertion; an incomplete rename leaves this.",
        "rename again with patchelf 0.19",
    ),
    (
        "closure",
        "closure",
        _E,
        "Each needed library is reachable by that file's own RPATH, or is declared as external.",
        "it loads only when something else happened to load the library before, or a system ROCm hides the gap.",
        "invoke repair --mode fat, or --mode thin to declare it external",
    ),
    (
        "soname-major",
        "closure",
        _E,
        "Needed ROCm libraries and those in the wheel are of the same SONAME major.",
        "a wheel built for another ROCm major cannot load.",
        "rebuild everything with one ROCm",
    ),
    (
        "defined-versions",
        "closure",
        _E,
        "Symbol versions that are needed are defined by the library in the wheel.",
        "the loader refuses with 'version not found'.",
        "bundle the library that the file was linked with",
    ),
    (
        "dlopen-name",
        "names",
        _W,
        "ROCm libraries that are opened by name are there under that name.",
        "a feature vanishes or the process aborts at its first use; needs alone do not show it.",
        "invoke repair --mode fat takes them; never rename ROCm libraries",
    ),
    (
        "hashed-name",
        "names",
        _E,
        "ROCm libraries keep their names.",
        "Triton, roctracer and others open them by name and load a second copy or none.",
        "repair the original wheel with this tool instead",
    ),
    (
        "duplicate-content",
        "names",
        _W,
        "No library is there twice under different names.",
        "each copy is loaded on its own, with its own state, and costs its size.",
        "keep one file, named by its SONAME",
    ),
    (
        "no-device-code",
        "identity",
        _E,
        "A ROCm wheel holds HIP code.",
        "a CPU build passes every other check and is found by its users.",
        "look at configure's summary: USE_ROCM was turned off",
    ),
    (
        "bundle-broken",
        "coverage",
        _E,
        "Offload bundles can be read to the end.",
        "the HIP runtime would find no code or wrong code.",
        "rebuild the library",
    ),
    (
        "arch-missing",
        "coverage",
        _E,
        "Every bundle of every library has code for every GPU target asked for.",
        "the import works, the first kernel fails with 'invalid device function'.",
        "rebuild with the target in PYTORCH_ROCM_ARCH",
    ),
    (
        "arch-uneven",
        "coverage",
        _W,
        "All bundles of a library serve the same GPU targets.",
        "a target that only some translation units serve fails at some kernels.",
        "rebuild in a fresh tree: a warm one keeps objects of an older list",
    ),
    (
        "data-missing",
        "coverage",
        _E,
        "rocBLAS, hipBLASLt and hipSPARSELt in the wheel have data for the GPU targets.",
        "the process aborts at the first matrix product.",
        "invoke repair --mode fat --arch …, from a ROCm that has them",
    ),
    (
        "platform",
        "platform",
        _E,
        "The tag promises no more than all files keep.",
        "pip installs the wheel where it cannot load.",
        "invoke repair --mode retag measures the tag",
    ),
    (
        "tag-disagrees",
        "platform",
        _E,
        "File name and WHEEL have the same tags.",
        "installers disagree on where the wheel goes.",
        "invoke repair --mode retag",
    ),
    (
        "cold-load",
        "load",
        _E,
        "Every library loads alone, in a process of its own, with ROCm of the builder hidden.",
        "what loads only in some order, or only beside a system ROCm, fails on the user's machine.",
        "see closure and dlopen-name",
    ),
    (
        "foreign-library",
        "load",
        _E,
        "What is loaded comes from the wheel, the C library, or a declared provider.",
        "two ROCm copies in a process abort or compute with the wrong data files.",
        "invoke repair --mode fat",
    ),
    (
        "install",
        "install",
        _E,
        "pip and uv install the wheel into fresh environments.",
        "a colleague could not.",
        "read the installer's own message",
    ),
    (
        "import",
        "install",
        _E,
        "The package imports within the time limit.",
        "a wheel that does not import without a GPU cannot be tested anywhere else.",
        "read the traceback",
    ),
)

CATALOGUE: dict[str, Check] = {
    id_: Check(id=id_, group=group, severity=severity, what=what, why=why, remedy=remedy)
    for id_, group, severity, what, why, remedy in _ROWS
}


def explain(id_: str) -> Check:
    """The entry ``id_``; raises :class:`UnknownCheck`."""
    if id_ not in CATALOGUE:
        raise UnknownCheck(f"there is no check {id_!r}", remedy=nearest(id_, CATALOGUE))
    return CATALOGUE[id_]
