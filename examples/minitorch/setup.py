"""Builds minitorch with CMake and packs it; reads the environment variables that PyTorch's setup.py reads.

``python setup.py build --cmake-only`` stops after CMake has configured ``build/``.
"""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "build"
VERSION = "0.1.0"
# CMake itself reads these from the environment; as variables they would be unused.
NOT_FORWARDED = {"CMAKE_GENERATOR", "CMAKE_BUILD_PARALLEL_LEVEL", "CMAKE_PREFIX_PATH"}


def package_version() -> str:
    """PYTORCH_BUILD_VERSION if it is set (PyTorch then wants the number too), else the version of the source."""
    if not (version := os.environ.get("PYTORCH_BUILD_VERSION", "")):
        return VERSION
    number = int(os.environ.get("PYTORCH_BUILD_NUMBER") or 0)
    assert number > 0, "PYTORCH_BUILD_NUMBER must be set with PYTORCH_BUILD_VERSION"
    return version if number == 1 else f"{version}.post{number}"


def cmake_variables() -> dict[str, str]:
    """What CMake is told: the interpreter's paths, and every USE_*, BUILD_* and CMAKE_* of the environment."""
    variables = {
        "MINITORCH_VERSION": package_version(),
        "PYTHON_INCLUDE_DIR": sysconfig.get_path("include"),
        "PYTHON_EXT_SUFFIX": sysconfig.get_config_var("EXT_SUFFIX"),
    }
    try:
        import numpy

        variables["NUMPY_INCLUDE_DIR"] = numpy.get_include()
    except ImportError:
        pass
    forwarded = {
        name: value
        for name, value in os.environ.items()
        if re.match(r"(USE|BUILD|CMAKE)_", name) and name not in NOT_FORWARDED
    }
    return {**variables, **forwarded}


def cmake_cache() -> dict[str, str]:
    """The entries of CMake's cache."""
    text = (BUILD / "CMakeCache.txt").read_text("utf-8")
    return dict(re.findall(r"^([^:#/\s][^:]*):[A-Z]+=(.*)$", text, re.MULTILINE))


def configure() -> None:
    """Run CMake unless it has configured before, as PyTorch does."""
    if (BUILD / "CMakeCache.txt").is_file() and (BUILD / "build.ninja").is_file():
        return
    options = [f"-D{name}={value}" for name, value in sorted(cmake_variables().items())]
    subprocess.run(["cmake", "-GNinja", *options, "-S", str(ROOT), "-B", str(BUILD)], check=True)


def git_version() -> str:
    """The commit of this tree, ``Unknown`` if it is no git checkout of its own."""
    if not (ROOT / ".git").exists():
        return "Unknown"
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def version_module() -> str:
    """The text of minitorch/version.py."""
    cache = cmake_cache()
    hip = cache.get("MINITORCH_HIP_VERSION") or None
    return (
        f"__version__ = {package_version()!r}\n"
        f"git_version = {git_version()!r}\n"
        f"hip = {hip!r}\n"
        f"rocm = {'.'.join(hip.split('.')[:2]) if hip else None!r}\n"
        f"archs = {tuple(filter(None, cache.get('MINITORCH_ROCM_ARCH', '').split(';')))!r}\n"
        "cuda = None\n"
    )


class Build(build):
    """CMake first, then Python's files."""

    user_options = [*build.user_options, ("cmake-only", None, "stop after CMake has configured")]
    boolean_options = ["cmake-only"]

    def initialize_options(self) -> None:
        super().initialize_options()
        self.cmake_only = False

    def run(self) -> None:
        configure()
        if self.cmake_only:
            return
        jobs = os.environ.get("MAX_JOBS", "")
        subprocess.run(["cmake", "--build", str(BUILD), *(["-j", jobs] if jobs else [])], check=True)
        super().run()


class BuildPy(build_py):
    """Python's files, with what CMake built beside them."""

    def run(self) -> None:
        super().run()
        package = Path(self.build_lib) / "minitorch"
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        for built in sorted((BUILD / "lib").glob("*.so")):
            copy(built, package / (built.name if built.name.endswith(suffix) else f"lib/{built.name}"))
        copy(BUILD / "bin" / "mini_info", package / "bin" / "mini_info")
        headers = [*(ROOT / "include" / "minitorch").glob("*.h")]
        if cmake_cache().get("MINITORCH_HIP_VERSION"):
            headers += (ROOT / "csrc" / "hip").glob("*.h")
        for header in headers:
            copy(header, package / "include" / "minitorch" / header.name)
        (package / "version.py").write_text(version_module(), "utf-8")


def copy(source: Path, target: Path) -> None:
    """Copy a file with its mode, making the directory."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


class BdistWheel(bdist_wheel):
    """Packs files with modes that do not depend on the umask of whoever laid the source."""

    def write_wheelfile(self, *args: object, **kwargs: object) -> None:
        super().write_wheelfile(*args, **kwargs)
        for path in Path(self.bdist_dir).rglob("*"):
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


class BinaryDistribution(Distribution):
    """One wheel per Python: the extension is built by CMake, so setuptools does not know of it."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    version=package_version(),
    distclass=BinaryDistribution,
    cmdclass={"build": Build, "build_py": BuildPy, "bdist_wheel": BdistWheel},
)
