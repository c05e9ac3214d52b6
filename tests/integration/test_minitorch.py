"""minitorch by itself: its hipify step on any machine, and its wheel where hipcc is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rocm_wheels.config import PROJECT_ROOT
from rocm_wheels.elf import ElfFile, offload

pytestmark = pytest.mark.integration


def missing() -> list[str]:
    """What a build with this interpreter lacks."""
    found = [name for name in ("hipcc", "cmake", "ninja") if shutil.which(name) is None]
    for text in ("build", "numpy>=2", "setuptools>=77"):
        wanted = Requirement(text)
        try:
            if not wanted.specifier.contains(version(wanted.name), prereleases=True):
                found.append(text)
        except PackageNotFoundError:
            found.append(text)
    return found


needs_hipcc = pytest.mark.skipif(bool(missing()), reason=f"not on this machine: {', '.join(missing())}")

ARCHS = ("gfx1030", "gfx1100")
HIP_LIBRARIES = ("minitorch/lib/libmini_c10_hip.so", "minitorch/lib/libmini_hip.so")


def lay(folder: Path) -> Path:
    """A copy of the example in ``folder``, without what a build by hand may have left in it."""
    left = shutil.ignore_patterns("build", "hip", "*.egg-info", "dist", "__pycache__")
    return Path(shutil.copytree(PROJECT_ROOT / "examples" / "minitorch", folder, ignore=left))


def run(tree: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not re.match(r"(USE|BUILD|CMAKE|PYTORCH)_", k)}
    fixed = {"USE_ROCM": "1", "PYTORCH_ROCM_ARCH": ";".join(ARCHS), "SOURCE_DATE_EPOCH": "315532800", "MAX_JOBS": "2"}
    return subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env={**inherited, **fixed, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def hipify(tree: Path) -> subprocess.CompletedProcess[str]:
    return run(tree, "tools/amd_build/build_amd.py")


def build(tree: Path, **env: str) -> Path:
    """The wheel of ``tree``."""
    assert hipify(tree).returncode == 0
    done = run(tree, "-m", "build", "--wheel", "--no-isolation", **env)
    assert done.returncode == 0, done.stdout[-4000:]
    (wheel,) = (tree / "dist").glob("*.whl")
    return wheel


def test_hipify_leaves_no_name_of_cuda(tmp_path: Path) -> None:
    tree = lay(tmp_path / "tree")
    assert hipify(tree).returncode == 0
    for path in (tree / "csrc" / "hip").iterdir():
        made_from, _, text = path.read_text("utf-8").partition("\n")
        assert "csrc/cuda/" in made_from
        assert not re.search("cuda|cublas|nvtools", text, re.IGNORECASE), path


def test_second_hipify_keeps_even_what_was_patched_in_between(tmp_path: Path) -> None:
    tree = lay(tmp_path / "tree")
    assert hipify(tree).stdout.startswith("wrote ")
    patched = tree / "csrc" / "hip" / "Reduce.hip"
    patched.write_text(patched.read_text("utf-8") + "// patched\n", "utf-8")
    assert "wrote" not in hipify(tree).stdout
    assert patched.read_text("utf-8").endswith("// patched\n")


def test_hipify_refuses_a_name_that_it_cannot_translate(tmp_path: Path) -> None:
    tree = lay(tmp_path / "tree")
    source = tree / "csrc" / "cuda" / "Blas.cu"
    source.write_text(source.read_text("utf-8") + "// cublasDgemm\n", "utf-8")
    done = hipify(tree)
    assert done.returncode == 1
    assert "csrc/cuda/Blas.cu: error: cublasDgemm has no translation" in done.stdout
    assert not (tree / "csrc" / "hip" / "Blas.hip").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(lay(tmp_path_factory.mktemp("minitorch") / "tree"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@needs_hipcc
def test_same_bytes_in_another_directory_under_another_umask(wheel: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        other = build(lay(tmp_path / "a" / "longer" / "path"))
    finally:
        os.umask(before)
    assert other.read_bytes() == wheel.read_bytes()


@needs_hipcc
@pytest.mark.parametrize("name", HIP_LIBRARIES)
def test_every_offload_bundle_has_code_for_every_arch(installed: Path, name: str) -> None:
    bundles = offload.read_bundles(ElfFile.parse((installed / name).read_bytes(), name))
    assert len(bundles) == {"libmini_c10_hip.so": 1, "libmini_hip.so": 3}[Path(name).name]
    assert {bundle.archs for bundle in bundles} == {frozenset(ARCHS)}


@needs_hipcc
def test_own_files_need_glibc_2_34_at_most_and_search_only_the_wheel(installed: Path) -> None:
    names = [
        *installed.glob("minitorch/*.so"),
        *installed.glob("minitorch/lib/*.so"),
        installed / "minitorch/bin/mini_info",
    ]
    assert len(names) == 5
    for path in names:
        elf = ElfFile.parse(path.read_bytes(), path.name)
        versions = [v for found in elf.verneed.values() for v in found]
        glibc = [tuple(map(int, v[6:].split("."))) for v in versions if re.fullmatch(r"GLIBC_[\d.]+", v)]
        assert max(glibc) <= (2, 34), path
        assert elf.rpath is None
        assert all(entry.startswith("$ORIGIN") for entry in (elf.runpath or "").split(":")), path


@needs_hipcc
def test_wheel_works_without_a_gpu_and_says_why_there_is_none(installed: Path) -> None:
    code = (
        "import minitorch as m; a = m.tensor([[1, 2], [3, 4]]); print((a @ a).tolist(), (a + a).tolist());"
        "print(m.tensor((a @ a).numpy()).tolist()); print(m.cuda.is_available(), m.cuda.reason())"
    )
    done = run(installed, "-c", code, HIP_VISIBLE_DEVICES="-1")
    assert done.stdout.splitlines() == [
        "[[7.0, 10.0], [15.0, 22.0]] [[2.0, 4.0], [6.0, 8.0]]",
        "[[7.0, 10.0], [15.0, 22.0]]",
        "False hipGetDeviceCount gives error 100: no ROCm-capable device is detected",
    ]


@needs_hipcc
def test_use_rocm_0_gives_a_wheel_that_admits_to_be_for_the_cpu(tmp_path: Path) -> None:
    wheel = build(lay(tmp_path / "tree"), USE_ROCM="0")
    with zipfile.ZipFile(wheel) as archive:
        assert not set(HIP_LIBRARIES) & set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    done = run(tmp_path / "installed", "-c", "import minitorch as m; print(m.version.hip, m.cuda.reason())")
    assert done.stdout.strip() == "None minitorch was compiled without ROCm"


@needs_hipcc
@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"PYTORCH_ROCM_ARCH": ""}, "PYTORCH_ROCM_ARCH is empty"),
        ({"PYTORCH_BUILD_VERSION": "0.1.0+rocm5.7"}, "PYTORCH_BUILD_NUMBER must be set"),
    ],
    ids=["no arch", "version without number"],
)
def test_configure_refuses(tmp_path: Path, env: dict[str, str], message: str) -> None:
    tree = lay(tmp_path / "tree")
    assert hipify(tree).returncode == 0
    done = run(tree, "setup.py", "build", "--cmake-only", **env)
    assert done.returncode != 0
    assert message in done.stdout
