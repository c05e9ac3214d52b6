"""Faults of published wheels, and who notices them: verify and the tools that people trust.

`python -m tests.verify_detection` writes the table of docs/verify.md anew.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rocm_wheels.console import Console
from rocm_wheels.verify import VerifyOptions, verify
from tests.verify_corruptions import (
    ARCHS,
    BLAS,
    COMMIT,
    CORE,
    DATA,
    HIP,
    LIB,
    NAME,
    PT_LOAD,
    PT_PHDR,
    PT_STACK,
    PYTHON,
    TOP,
    Corruption,
    Files,
    Parts,
    added,
    compiled,
    dynamic,
    good_files,
    header,
    member,
    objcopied,
    retagged,
    segment,
    setting,
    stub,
    swapped,
    true_bundle,
    wheel_header,
    without,
    without_all,
    zip64_block_without_need,
)
from tests.verify_docs import replace_part

Change = Callable[[Parts, Path], None]


def both(*changes: Change) -> Change:
    """One change after the other."""

    def change(parts: Parts, folder: Path) -> None:
        for each in changes:
            each(parts, folder)

    return change


def renamed_library(parts: Parts, folder: Path) -> None:
    """What grafting by hash does to the HIP runtime: its literal name leads nowhere."""
    hashed = "libamdhip64-14d55e83.so.5"
    compiled(f"{LIB}/{hashed}")(parts, folder)
    opener = 'const char *f(void) { return "libamdhip64.so.5"; }'
    compiled(TOP, needs=stub(hashed), code=opener, rpath="$ORIGIN", bundles=[true_bundle()])(parts, folder)
    compiled(CORE, rpath="$ORIGIN", bundles=[true_bundle()])(parts, folder)
    for name in (HIP, BLAS, f"{LIB}/libMIOpen.so.1"):
        del parts.files[name]


def torch_without_numpy(parts: Parts, folder: Path) -> None:
    """A torch whose bindings were compiled while NumPy was missing."""
    text = 'const char *f(void) { return "PyTorch was compiled without NumPy support"; }'
    compiled(f"{LIB}/libtorch_python.so", code=text)(parts, folder)
    compiled(f"{LIB}/libtorch_hip.so", rpath="$ORIGIN", bundles=[true_bundle()])(parts, folder)


def dependant(parts: Parts, _: Path) -> None:
    """A package that requires torch and brings ROCm all the same."""
    parts.files = {n: d for n, d in parts.files.items() if not n.endswith("version.py")}
    parts.metadata = [line.replace(NAME, "visx") for line in parts.metadata] + ["Requires-Dist: torch>=2.5"]
    parts.name = "visx"


C = Corruption
LITERAL_PATH = 'const char *f(void) { return "/opt/amdgpu/share/libdrm/amdgpu.ids"; }'
FAULTS: tuple[tuple[str, Corruption], ...] = (
    ("pypa/wheel#692", C("archive-broken", "bad ZIP64 block after retagging", packed=zip64_block_without_need)),
    ("jax-ml/jax#21816", C("archive-broken", "the file is cut short", packed=lambda d: d[:-1000])),
    (
        "pypa/auditwheel#545",
        C(
            "stored",
            "large members are not compressed",
            parts=both(
                lambda p, _: p.files.update({"minitorch/table.bin": bytes(2 << 20)}),
                setting(stored=frozenset({"minitorch/table.bin"})),
            ),
        ),
    ),
    (
        "pytorch/pytorch#2596",
        C(
            "record",
            "RECORD is older than the file",
            parts=setting(record=lambda r: [x.replace(f"{CORE},sha256=", f"{CORE},sha256=A") for x in r]),
        ),
    ),
    (
        "ROCm/TheRock#6712",
        C(
            "layout",
            "LOAD out of step after patchelf 0.18.0",
            parts=member(TOP, segment(PT_LOAD, "vaddr", 0x123456, 3)),
        ),
    ),
    (
        "pypa/auditwheel#716",
        C("layout", "PHDR in no LOAD after strip", parts=member(TOP, segment(PT_STACK, "type", PT_PHDR))),
    ),
    (
        "pypa/auditwheel#722",
        C(
            "absolute-rpath",
            "RPATH of a temporary directory",
            parts=compiled(TOP, rpath="/tmp/tmpab12cd/lib", bundles=[true_bundle()]),
        ),
    ),
    (
        "pytorch/pytorch#189906",
        C(
            "closure",
            "needs name files that are not there",
            parts=compiled(TOP, needs=stub("libgone.so.1"), rpath="$ORIGIN", bundles=[true_bundle()]),
        ),
    ),
    (
        "pytorch/pytorch#191450",
        C(
            "closure",
            "only the builder's ROCm has the library",
            parts=compiled(TOP, needs=stub("librccl.so.1"), rpath="$ORIGIN:/opt/rocm/lib", bundles=[true_bundle()]),
        ),
    ),
    (
        "pytorch/pytorch#195670",
        C(
            "dlopen-name",
            "a name that dlopen wants is not there",
            parts=compiled(f"{LIB}/libopener.so", code='const char *f(void) { return "libroctx64.so.4"; }'),
        ),
    ),
    ("triton-lang/triton driver.py", C("hashed-name", "grafting renamed the HIP runtime", parts=renamed_library)),
    (
        "ROCm/TheRock#332",
        C("no-device-code", "a CPU build under a ROCm name", parts=both(compiled(CORE), compiled(TOP))),
    ),
    (
        "pytorch/pytorch#132570",
        C(
            "arch-missing",
            "one translation unit lacks a GPU",
            parts=compiled(CORE, rpath="$ORIGIN", bundles=[true_bundle(), true_bundle(ARCHS[:1])]),
        ),
    ),
    (
        "pytorch/pytorch#2952",
        C(
            "arch-uneven",
            "objects of an older arch list",
            parts=compiled(CORE, rpath="$ORIGIN", bundles=[true_bundle(), true_bundle((*ARCHS, "gfx906"))]),
        ),
    ),
    ("ROCm/rocBLAS#1331", C("data-missing", "no Tensile data for a GPU", parts=without_all(DATA, "gfx1100"))),
    (
        "pytorch/builder#1695",
        C("data-missing", "hipBLASLt without its directory", parts=compiled(f"{LIB}/libhipblaslt.so.0")),
    ),
    (
        "ROCm/MIOpen#1391",
        C(
            "tuning-missing",
            "no MIOpen database for a GPU",
            parts=without("minitorch/share/miopen/db/gfx1100_20.HIP.fdb.txt"),
        ),
    ),
    ("ROCm/TheRock#1011", C("runpath", "LD_LIBRARY_PATH beats the wheel", parts=member(BLAS, dynamic(15, new_tag=29)))),
    ("microsoft/onnxruntime#8135", C("second-rocm", "a dependant of torch brings ROCm", parts=dependant)),
    (
        "pypa/auditwheel#368",
        C(
            "closure",
            "--exclude left /opt/rocm and said nothing",
            parts=both(
                without_all("libamdhip64"),
                compiled(CORE, needs=stub("libamdhip64.so.5"), rpath="/opt/rocm/lib", bundles=[true_bundle()]),
            ),
        ),
    ),
    ("pytorch/pytorch#166101", C("platform", "the tag promises an older glibc", parts=retagged("manylinux_2_28"))),
    (
        "vllm-project/vllm scripts",
        C(
            "tag-disagrees",
            "the file was renamed, WHEEL not",
            parts=wheel_header("Tag", f"cp{PYTHON}-cp{PYTHON}-manylinux_2_41_x86_64"),
        ),
    ),
    (
        "jax-ml/jax#16523",
        C("renamed", "another distribution's import package", parts=added(torch__functional_dot_py=b"")),
    ),
    (
        "AUTOMATIC1111/stable-diffusion-webui#17051",
        C("exec-stack", "executable stack", parts=member(TOP, segment(PT_STACK, "flags", 7))),
    ),
    (
        "pypa/auditwheel#227",
        C("version-needs", "need renamed, version table not", parts=member(CORE, dynamic(1, new_tag=0x6FFFFEF5))),
    ),
    (
        "pytorch/builder#1270",
        C(
            "defined-versions",
            "a library of other symbol versions",
            parts=compiled(HIP, versions={"hip_4.2": "libamdhip64_so_5"}),
        ),
    ),
    (
        "ROCm/TheRock#1119",
        C(
            "soname-major",
            "built for the next ROCm major",
            parts=compiled(TOP, needs=stub("libamdhip64.so.6"), rpath="$ORIGIN", bundles=[true_bundle()]),
        ),
    ),
    (
        "ROCm/tensorflow-upstream#1499",
        C(
            "rocm-disagrees",
            "the name says another ROCm",
            parts=both(setting(version="1.0+rocm6.2"), header("Version", "1.0+rocm6.2")),
        ),
    ),
    ("ROCm/TheRock#1312", C("feature-missing", "NumPy was missing at build time", parts=torch_without_numpy)),
    (
        "pypa/wheel#400",
        C(
            "duplicate-content",
            "symbolic links became copies",
            parts=lambda p, _: p.files.update({f"{LIB}/libcore.so.1": p.files[CORE]}),
        ),
    ),
    (
        "ROCm/pytorch#984",
        C("data-path", "amdgpu.ids at an absolute path", parts=compiled(f"{LIB}/libdrm_x.so", code=LITERAL_PATH)),
    ),
    (
        "ROCm/rocm-jax#442",
        C(
            "layout-missing",
            "RPATH for one GPU family's SDK",
            parts=compiled(TOP, rpath="$ORIGIN/../../_rocm_sdk_libraries_gfx110X/lib", bundles=[true_bundle()]),
        ),
    ),
    (
        "ROCm/TheRock#7839",
        C(
            "split-device-code",
            "device wheel left out",
            parts=objcopied(CORE, "--remove-section=.hip_fatbin", "--add-section", ".rocm_kpack_ref={folder}/bytes"),
        ),
    ),
    (
        "vllm-project/vllm#34224",
        C("cuda-inside", "requires nvidia-*", parts=header("Requires-Dist", "nvidia-cublas-cu12==12.8.4.1")),
    ),
    (
        "pytorch/pytorch#145501",
        C(
            "stale",
            "yesterday's code under today's name",
            parts=member("minitorch/version.py", swapped(b"0123456789", b"ffffffffff")),
        ),
    ),
    (
        "microsoft/onnxruntime#8135",
        C(
            "licence-missing",
            "ROCm without its licence texts",
            parts=without("INFO/licenses/rocm/all.txt"),
        ),
    ),
)

TOOLS: Mapping[str, tuple[str, ...]] = {
    "pip": ("pip", "install", "--quiet", "--no-deps", "--no-index", "--target", "{folder}", "{wheel}"),
    "uv": (
        "uv",
        "pip",
        "install",
        "--quiet",
        "--no-cache",
        "--no-deps",
        "--no-index",
        "--target",
        "{folder}",
        "{wheel}",
    ),
    "installer": ("installer", "--validate-record", "all", "--prefix", "{folder}", "{wheel}"),
    "wheel": ("wheel", "unpack", "--dest", "{folder}", "{wheel}"),
    "twine": ("twine", "check", "--strict", "{wheel}"),
    "check-wheel-contents": ("check_wheel_contents", "{wheel}"),
    "auditwheel": ("auditwheel", "show", "{wheel}"),
}


def good_parts(files: Files) -> Parts:
    """The good wheel with a tag that every Linux takes, and a README that twine wants."""
    parts = Parts(copy.copy(files), tag=f"cp{PYTHON}-cp{PYTHON}-linux_x86_64")
    wheel_header("Tag", parts.tag)(parts, Path())
    parts.metadata = [*parts.metadata, "Description-Content-Type: text/markdown"]
    return parts


@dataclass(frozen=True)
class Row:
    """One fault: the ids that verify reports, and the tools that accept the wheel (exit code 0)."""

    threads: str
    fault: Corruption
    found: frozenset[str]
    accepted: frozenset[str]


def judged(wheel: Path) -> frozenset[str]:
    """Ids of verify's findings."""
    report = verify([wheel], VerifyOptions(archs=ARCHS, commit=COMMIT), Console(quiet=True))
    return frozenset(f.check.id for f in report.findings)


def accepting(wheel: Path) -> frozenset[str]:
    """Tools that have nothing to say against a wheel."""
    found = set()
    for tool, words in TOOLS.items():
        with tempfile.TemporaryDirectory() as folder:
            command = [word.format(folder=folder, wheel=wheel) for word in words]
            done = subprocess.run([sys.executable, "-m", *command], capture_output=True, check=False)
        if done.returncode == 0:
            found.add(tool)
    return frozenset(found)


def rows(folder: Path) -> Iterator[Row]:
    """Every fault in a wheel of its own, judged by all."""
    files = good_files(folder / "good")

    def one(number: int) -> Row:
        threads, fault = FAULTS[number]
        parts = good_parts(files)
        if fault.parts:
            fault.parts(parts, folder / str(number))
        wheel = parts.write(folder / str(number) / "wheel")
        if fault.packed:
            wheel.write_bytes(fault.packed(wheel.read_bytes()))
        return Row(threads, fault, judged(wheel), accepting(wheel))

    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(one, range(len(FAULTS)))


def headings() -> str:
    """The head of the table, which names the tools' versions."""
    cells = ["fault", "seen at", "verify", *(f"{tool} {version(tool)}" for tool in TOOLS)]
    return "| " + " | ".join(cells) + " |\n" + "|---" * len(cells) + "|"


def table(found: list[Row]) -> str:
    """The table as docs/verify.md has it: a dash where a tool accepts the wheel."""
    lines = [headings()]
    for row in found:
        marks = ("-" if tool in row.accepted else "**refuses**" for tool in TOOLS)
        lines.append("| " + " | ".join((row.fault.name, row.threads, f"`{row.fault.check}`", *marks)) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        replace_part("detection", table(list(rows(Path(scratch)))))
