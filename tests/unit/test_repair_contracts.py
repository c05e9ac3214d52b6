"""Who brings what stays outside: excludes without a promise, SONAMEs of another major release, packages that drift.

Faults of the field, by the tests that hold them: an exclude leaves a wheel that looks repaired (B14), two copies of
ROCm in one process (B13), a SONAME that jumped with the major release (B43), a package called after another release
than its symbols need (B44).
"""

import json
from pathlib import Path

import pytest

from rocm_wheels.errors import UsageError
from rocm_wheels.repair.contracts import Contracts, chosen, rocm_range
from rocm_wheels.repair.model import Graft
from rocm_wheels.repair.sbom import sbom


def test_a_required_distribution_comes_before_the_system() -> None:
    contracts = Contracts(["torch==2.6.0", "numpy", 'rocm-sdk-core>=7; extra == "sdk"'], ">=6.1,<7")
    assert str(contracts.of("libamdhip64.so.6")) == "torch ==2.6.0"
    assert str(contracts.of("libc10_hip.so")) == "torch ==2.6.0"
    assert contracts.of("libodd.so.1") is None


def test_without_one_the_system_brings_rocm_and_the_driver_its_own_library() -> None:
    contracts = Contracts(["numpy"], ">=6.1,<7")
    assert str(contracts.of("librocblas.so.4")) == "system ROCm >=6.1,<7"
    assert str(contracts.of("libcuda.so.1")) == "NVIDIA's driver"
    assert contracts.of("libcudart.so.12") is None
    assert contracts.of("libtorch_hip.so") is None


def test_nvidia_libraries_are_brought_by_the_distribution_that_is_called_like_them() -> None:
    lines = ["nvidia-cublas-cu12==12.8", "nvidia-cuda-runtime-cu12==12.9", "nvidia-cudnn-cu12==9.1"]
    contracts = Contracts(lines, "")
    found = {name: str(contracts.of(name)) for name in ("libcudart.so.12", "libcudnn_ops.so.9", "libcublasLt.so.12")}
    assert found == {
        "libcudart.so.12": "nvidia-cuda-runtime-cu12 ==12.9",
        "libcudnn_ops.so.9": "nvidia-cudnn-cu12 ==9.1",
        "libcublasLt.so.12": "nvidia-cublas-cu12 ==12.8",
    }


@pytest.mark.parametrize(
    ("needed", "symbols", "releases"),
    [
        (["libamdhip64.so.6"], ["hip_4.2", "hip_6.1", "hip_6.0"], ">=6.1,<7"),
        (["libamdhip64.so.5"], ["hip_4.2"], ">=5,<6"),
        (["libamdhip64.so.7", "librocblas.so.5"], [], ">=7,<8"),
        (["libamdhip64.so.6", "libamdhip64.so.7"], ["hip_6.1"], ""),
        (["librocblas.so.5"], [], ""),
    ],
)
def test_the_releases_that_fit_follow_from_soname_and_symbols(
    needed: list[str], symbols: list[str], releases: str
) -> None:
    assert rocm_range(needed, [{needed[0]: symbols}]) == releases


def test_a_chosen_distribution_must_bring_rocm_of_the_release_that_the_wheel_is_built_for() -> None:
    assert chosen(["rocm-sdk-core==7.1.*"], 7) == ("rocm-sdk-core==7.1.*",)
    with pytest.raises(UsageError, match=r"built for ROCm 7 .* rocm-sdk-core==6\.4 brings another"):
        chosen(["rocm-sdk-core==6.4"], 7)
    with pytest.raises(UsageError, match="numpy is not known to bring ROCm"):
        chosen(["numpy"], 7)
    with pytest.raises(UsageError, match="is no requirement"):
        chosen(["rocm-sdk-core=7"], 7)


def test_the_bill_of_materials_names_licences_and_keeps_former_components(tmp_path: Path) -> None:
    copyright_file = tmp_path / "copyright"
    copyright_file.write_text("Format: https://x\n\nFiles: *\nLicense: Expat\n text\n\nFiles: a\nLicense: Apache-2.0\n")
    first = sbom([Graft("demo/lib/liba.so", tmp_path / "liba.so", "liba1", "1.0-1", copyright_file, "pkg:deb/x/liba1")])
    second = json.loads(sbom([Graft("demo/lib/libb.so", tmp_path / "libb.so")], first))
    a, b = second["components"]
    assert [entry["license"]["name"] for entry in a["licenses"]] == ["Expat", "Apache-2.0"]
    assert (a["purl"], a["version"]) == ("pkg:deb/x/liba1", "1.0-1")
    assert (b["name"], b["version"]) == ("libb.so", "unknown")
