"""Data files tell their target by their path."""

from __future__ import annotations

import pytest

from rocm_wheels.gpu.datafiles import serves, targets_of


@pytest.mark.parametrize(
    ("path", "targets"),
    [
        ("rocblas/library/TensileLibrary_lazy_gfx90a.dat", {"gfx90a"}),
        ("rocblas/library/Kernels.so-000-gfx90a-xnack-.hsaco", {"gfx90a"}),
        ("hipblaslt/library/gfx1201/TensileLibrary_HH.co", {"gfx1201"}),
        ("share/miopen/db/gfx90a68.HIP.fdb.txt", {"gfx90a"}),
        ("share/miopen/db/gfx94280.kdb", {"gfx942"}),
        ("share/miopen/db/gfx1030_36.fdb", {"gfx1030"}),
        ("aotriton.images/amd-gfx90a/flash/attn_fwd.aks2", {"gfx90a"}),
        ("rocblas/library/Kernels.so-000-gfx9-4-generic.hsaco", {"gfx9-4-generic"}),
        ("rocblas/library/TensileLibrary_Type_SB_fallback.dat", set()),
        ("share/rccl/msccl-algorithms/allreduce.xml", set()),
    ],
)
def test_the_target_stands_in_the_name_or_in_a_directory(path: str, targets: set[str]) -> None:
    assert targets_of(path) == targets


def test_a_family_stands_for_its_members() -> None:
    assert {"gfx1100", "gfx1103", "gfx1151"} <= targets_of("aotriton.images/amd-gfx11xx/flash/x.aks2")
    assert "gfx1201" not in targets_of("aotriton.images/amd-gfx11xx/flash/x.aks2")


def test_files_for_every_gpu_and_for_the_wanted_ones_serve() -> None:
    assert serves("library/TensileLibrary_fallback.dat", ["gfx1030"])
    assert serves("library/TensileLibrary_gfx90a.dat", ["gfx1030", "gfx90a:xnack-"])
    assert not serves("library/TensileLibrary_gfx90a.dat", ["gfx906"])
