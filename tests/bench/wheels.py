"""Real wheels for measuring, by name; downloaded once into the cache directory and checked by their hash.

No wheel is kept in the tree.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import parse_wheel_filename

from rocm_wheels.config import load


@dataclass(frozen=True)
class RealWheel:
    """A published wheel: its file name and sha256, and why it is measured."""

    file: str
    sha256: str
    why: str

    @property
    def pip_arguments(self) -> list[str]:
        """What pip has to be told to download this very file on any machine."""
        name, version, _, tags = parse_wheel_filename(self.file)
        words = [f"{name}=={version}", "--no-deps", "--only-binary=:all:"]
        for tag in sorted(tags, key=str):
            words += ["--platform", tag.platform]
        interpreters, abis = {tag.interpreter for tag in tags}, {tag.abi for tag in tags}
        if (python := min(interpreters)).startswith("cp"):
            words += ["--implementation", "cp", "--python-version", python[2:]]
            words += [word for abi in sorted(abis) for word in ("--abi", abi)]
        return words


WHEELS = {
    "jax": RealWheel(
        "jax_rocm7_pjrt-0.12.0-py3-none-manylinux_2_27_x86_64.whl",
        "4551d0714523355f2946ca1958c3f584e95661e467a641d36b726f718a1c7934",
        "one library of 459 MB, device code compressed",
    ),
    "jax60": RealWheel(
        "jax_rocm60_pjrt-0.5.0-py3-none-manylinux_2_28_x86_64.whl",
        "e8097aa9dde2b759604e7b3f163e50dc83380968002e32fc770a8f91126d1b55",
        "one library of 560 MB, device code as it is",
    ),
    "plugin": RealWheel(
        "jax_rocm7_plugin-0.10.2-cp311-cp311-manylinux_2_27_x86_64.whl",
        "fc6c3f6641d99916ea1896353a0c27187f1fcddb811768d4607d7e78834571a3",
        "takes ROCm and JAX's own library from outside",
    ),
    "cupy": RealWheel(
        "cupy_rocm_7_0-14.2.0-cp312-cp312-manylinux2014_x86_64.whl",
        "4912fcd48491adc332ebc7ed6f1d7487545ee2b9cf6fcc906b7827dbe182fe7f",
        "61 libraries, two of them big",
    ),
    "llvm": RealWheel(
        "rocm_llvm_python-7.2.2.562.46-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
        "f88c1b684fb97d0be363088f4913d48cbfe8cb4da2f27d395e197a6f6d0c8e6e",
        "65 libraries without any search path",
    ),
    "cyllama": RealWheel(
        "cyllama_rocm-0.7.0-cp312-abi3-manylinux_2_31_x86_64.manylinux_2_35_x86_64.whl",
        "e6ebb996d986f1add67a29300ded7781d50456c3f5311ae648f1d72a3b144b9c",
        "repaired before by somebody else",
    ),
    "bitsandbytes": RealWheel(
        "bitsandbytes-0.50.2-py3-none-manylinux_2_24_x86_64.whl",
        "55348a9a4a21bfd99cf8c7b32fe67b4030ae5c2a05738e03c1747f65fa6ec283",
        "below 50 MB: the targets do not count it",
    ),
    "tensorflow-cpu": RealWheel(
        "tensorflow_cpu-2.18.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "089e71746960ea581dca53401f84b3b99c8537313e337a9e5dbf97036a936f7e",
        "thousands of headers",
    ),
    "tensorflow": RealWheel(
        "tensorflow_rocm-2.14.0.600-cp310-cp310-manylinux2014_x86_64.whl",
        "3d43aefde2b136bcec0b9d04251c9f658dd1f49734a22ee96b2ea9fb899f7ec6",
        "a library of 1.4 GB with a string table of 40 MB, and 69 more",
    ),
    "torch": RealWheel(
        "torch-2.9.1-cp311-cp311-manylinux_2_28_x86_64.whl",
        "d033ff0ac3f5400df862a51bdde9bad83561f3739ea0046e68f5401ebfa67c1b",
        "0.9 GB and many headers (CUDA: measured for its size)",
    ),
}


def fetch(name: str) -> Path:
    """The wheel called ``name``, from the cache or from the index that pip is set up for."""
    wheel = WHEELS[name]
    folder = load().cache / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / wheel.file
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", beside, *wheel.pip_arguments]
            subprocess.run(command, check=True)
            (Path(beside) / wheel.file).rename(path)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wheel.sha256:
        raise SystemExit(f"{path} has the sha256 {found}, not {wheel.sha256}: remove it")
    return path
