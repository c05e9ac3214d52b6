"""Is the wheel what its name says: HIP inside, this version, this ROCm, these features?"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from rocm_wheels.repair.providers import is_rocm, stem
from rocm_wheels.verify.catalogue import finding
from rocm_wheels.verify.model import Finding
from rocm_wheels.verify.subject import Subject

_FRAMEWORKS = ("torch", "tensorflow", "jax")
# Import packages and the distribution that dependants ask for.
_UPSTREAM = {
    **{n: n for n in ("torch", "torchvision", "torchaudio", "triton", "jaxlib", "jax", "tensorflow", "vllm", "cupy")},
    "onnxruntime": "onnxruntime",
}
_SMALL = 1024
_MARKED = re.compile(r"rocm|hip|amd|torch")
_ASSIGNED = r"^{name}(?:\s*:[^=\n]*)?\s*=\s*(?:'([^'\n]*)'|\"([^\"\n]*)\"|(None))"
_ROCM_IN_LOCAL = re.compile(r"rocm[._-]?(\d+)(?:\.(\d+))?")
_ROCM_IN_NAME = re.compile(r"rocm-?(\d+)(?:-(\d+))?(?![\d.])")
_HIP_SYMBOL = re.compile(r"hip_(\d+)\.(\d+)")
_HIP_SONAME = re.compile(r"libamdhip64\.so\.(\d+)")
_FEATURES = {
    "RCCL (distributed)": "librccl",
    "MIOpen (convolutions)": "libMIOpen",
    "hipBLASLt": "libhipblaslt",
}


def says_rocm(subject: Subject) -> bool:
    """Whether the name or the version promises ROCm."""
    return "rocm" in subject.archive.distribution or "rocm" in (subject.archive.version.local or "")


def contents(subject: Subject) -> Iterator[Finding]:
    """HIP code in a ROCm wheel, no CUDA, no second ROCm, and something at all."""
    archive = subject.archive
    info = f"{archive.dist_info}/"
    payload = sum(r.size or 0 for n, r in subject.content.items() if not n.startswith(info))
    if payload < _SMALL and not subject.requirements and _MARKED.search(archive.distribution):
        yield finding("empty-wheel", subject.name, f"{payload} bytes besides the metadata, and no requirement")
        return
    yield from _hip(subject)
    if says_rocm(subject):
        yield from _cuda(subject)
    if subject.profile == "torch-dependant" and subject.bundles_rocm:
        first = next(m for m in sorted(subject.elves) if is_rocm(posixpath.basename(m)))
        yield finding("second-rocm", first, "is in the wheel, which requires torch")
    for package in sorted({n.partition("/")[0] for n in subject.content if "/" in n}):
        if _UPSTREAM.get(package, archive.distribution) != archive.distribution:
            yield finding("renamed", f"{package}/", f"belongs to {_UPSTREAM[package]}, this is {archive.distribution}")


def _hip(subject: Subject) -> Iterator[Finding]:
    """A framework holds device code; any other wheel that is called after ROCm at least needs a library of it."""
    elves = subject.elves.values()
    if any(e.bundles or e.broken_code or e.split for e in elves) or subject.profile == "rocm-base":
        return
    if subject.profile not in _FRAMEWORKS:
        needs_rocm = any(is_rocm(name) for e in elves for name in (*e.needed, *e.opens))
        if not says_rocm(subject) or not elves or needs_rocm:
            return
    cuda = next((e.name for e in elves if e.cuda), "")
    if cuda:
        yield finding("no-device-code", cuda, "holds CUDA code (.nv_fatbin), no library of the wheel holds HIP code")
    else:
        yield finding("no-device-code", subject.name, "no library holds HIP code (.hip_fatbin): a CPU build")


def _cuda(subject: Subject) -> Iterator[Finding]:
    for member, elf in subject.elves.items():
        needs = [n for n in elf.needed if n.startswith(("libcudart.so", "libcuda.so", "libcublas.so", "libcudnn.so"))]
        if elf.cuda or needs:
            yield finding("cuda-inside", member, f"needs {needs[0]}" if needs else "holds CUDA code (.nv_fatbin)")
    for requirement in subject.requirements:
        of_extra = requirement.marker is not None and "extra" in str(requirement.marker)
        if requirement.name.startswith("nvidia-") and not of_extra:
            yield finding("cuda-inside", "METADATA", f"Requires-Dist: {requirement}")


def versions(subject: Subject) -> Iterator[Finding]:
    """What the package itself says of its version, HIP and commit."""
    archive, commits = subject.archive, []
    for member in sorted(subject.content):
        package, _, file = member.partition("/")
        if file not in ("version.py", "_version.py") or package.replace("_", "-") != archive.distribution:
            continue
        text = subject.text(member)
        own = assigned(text, "__version__")
        if own and not _same_version(own, archive.version):
            yield finding("version-inside", member, f"__version__ is {own}, the wheel is {archive.version}")
        if subject.profile == "torch" and re.search(r"^hip\b", text, re.MULTILINE) and not assigned(text, "hip"):
            yield finding("hip-inside", member, "hip is None: a CPU or CUDA build")
        commits += [(member, c) for c in (assigned(text, "git_version"), assigned(text, "git_revision")) if c]
    wanted = subject.options.commit.lower()
    if not wanted:
        return
    if not commits:
        yield finding("stale", subject.name, f"names no commit, {wanted} was asked for")
    for member, commit in commits:
        if not (wanted.startswith(commit.lower()) or commit.lower().startswith(wanted)):
            yield finding("stale", member, f"is of commit {commit}, {wanted} was asked for")


def assigned(text: str, name: str) -> str:
    """The string that Python source assigns to ``name``; "" for None and where there is none."""
    match = re.search(_ASSIGNED.format(name=re.escape(name)), text, re.MULTILINE)
    return (match[1] or match[2] or "") if match else ""


def commit_of(subject: Subject) -> str:
    """The commit that the package names; "" for none."""
    members = (m for m in sorted(subject.content) if m.partition("/")[2] in ("version.py", "_version.py"))
    found = (assigned(subject.text(m), "git_version") for m in members)
    return next((c for c in found if c and c != "Unknown"), "")


def _same_version(text: str, version: Version) -> bool:
    """Equal, where a wheel without local label (a public index takes none) may hold a package that has one."""
    try:
        own = Version(text)
    except InvalidVersion:
        return False
    return own == version if version.local else own.public == version.public


def rocm(subject: Subject) -> Iterator[Finding]:
    """The ROCm of the name against that of SONAMEs, symbol versions and requirements; features of a framework."""
    needs = {int(m[1]): e.name for e in subject.elves.values() for n in e.needed if (m := _HIP_SONAME.match(n))}
    stated = stated_rocm(subject)
    if stated:
        source, majors, minor = stated
        for major, member in sorted(needs.items()):
            if major not in majors:
                evidence = f"needs libamdhip64.so.{major} (ROCm {major}), the wheel's {source} says ROCm {min(majors)}"
                yield finding("rocm-disagrees", member, evidence, symbol=f"libamdhip64.so.{major}")
        newest, member = _newest_hip(subject)
        if minor is not None and newest[0] in majors and newest[1] > minor:
            evidence = f"needs symbols hip_{newest[0]}.{newest[1]}, the wheel's {source} says ROCm {newest[0]}.{minor}"
            yield finding("rocm-disagrees", member, evidence, symbol=f"hip_{newest[0]}.{newest[1]}")
    for requirement in subject.requirements:
        if canonicalize_name(requirement.name) in ("rocm", "rocm-sdk-core", "rocm-sdk-libraries"):
            for major, member in needs.items():
                if not _allows(requirement.specifier, major):
                    yield finding("rocm-disagrees", member, f"needs ROCm {major}, METADATA requires {requirement}")
    if len(needs) > 1 and subject.profile in _FRAMEWORKS:
        yield finding("rocm-disagrees", subject.name, f"files of ROCm {' and '.join(map(str, sorted(needs)))} together")
    yield from _features(subject)


def stated_rocm(subject: Subject) -> tuple[str, frozenset[int], int | None] | None:
    """Where ROCm is stated, the majors it may mean (a name may say 60 for 6.0) and the minor, if any."""
    if local := _ROCM_IN_LOCAL.match(subject.archive.version.local or ""):
        return "version", frozenset({int(local[1])}), int(local[2]) if local[2] else None
    if name := _ROCM_IN_NAME.search(subject.archive.distribution):
        return "name", frozenset({int(name[1]), int(name[1][0])}), int(name[2]) if name[2] else None
    return None


def _newest_hip(subject: Subject) -> tuple[tuple[int, int], str]:
    found = (
        ((int(m[1]), int(m[2])), elf.name)
        for elf in subject.elves.values()
        for library, names in elf.verneed.items()
        if library.startswith("libamdhip64")
        for name in names
        if (m := _HIP_SYMBOL.fullmatch(name))
    )
    return max(found, default=((0, 0), ""))


def _allows(specifier: SpecifierSet, major: int) -> bool:
    return any(specifier.contains(f"{major}.{minor}.{patch}") for minor in range(30) for patch in range(5))


def _features(subject: Subject) -> Iterator[Finding]:
    hip = next((e for m, e in subject.elves.items() if posixpath.basename(m) == "libtorch_hip.so"), None)
    if hip is None or subject.profile != "torch":
        return
    needs = {stem(name) for name in hip.needed}
    for feature, library in _FEATURES.items():
        if library not in needs:
            yield finding("feature-missing", hip.name, f"does not need {library}: no {feature}", symbol=library)
    for elf in subject.elves.values():
        if elf.without_numpy:
            yield finding("feature-missing", elf.name, "was compiled without NumPy: tensor.numpy() fails")
