"""What a GPU can run, and why: the questions that people ask."""

from __future__ import annotations

import dataclasses

import pytest

from rocm_wheels.errors import Impossible, UnknownArch
from rocm_wheels.release import load_matrix, show
from rocm_wheels.release.gpus import OFFICIAL, Offer

MATRIX = load_matrix()


def ask(gpu: str, release: str, rocm: str = "", place: str = OFFICIAL) -> Offer:
    found = show.for_gpu(MATRIX, gpu, [MATRIX.release(release)], rocm=rocm)
    offers = [offer for each in found.values() for offer in each if offer.place == place]
    assert len(offers) == 1
    return offers[0]


def test_rx_6700_xt_runs_code_for_gfx1030_after_an_override() -> None:
    offer = ask("RX 6700 XT", "2.9.1")
    assert (offer.gpu, offer.kind, offer.arch) == ("gfx1031", "override", "gfx1030")
    assert offer.variable == "HSA_OVERRIDE_GFX_VERSION=10.3.0"
    assert offer.rocm == "6.3, 6.4"


def test_rx_6600_is_built_for_gfx1030_where_rocblas_has_no_kernels_of_its_own() -> None:
    offer = ask("RX 6600", "2.6.0", place="debian-trixie")
    assert (offer.kind, offer.arch, offer.variable) == ("override", "gfx1030", "HSA_OVERRIDE_GFX_VERSION=10.3.0")
    assert "rocBLAS there has kernels for gfx1030" in offer.why


def test_rx_7900_xtx_is_served_from_2_1_on() -> None:
    assert ask("RX 7900 XTX", "2.1.2").kind == "native"
    before = ask("RX 7900 XTX", "2.0.1")
    assert before.kind == "none"
    assert "not yet: 2.1.2 for ROCm 5.5 is the first" in before.why


def test_mi50_was_dropped_with_rocm_7_14() -> None:
    assert ask("MI50", "2.14.1", "7.2").kind == "native"
    offer = ask("MI50", "2.14.1", "7.14")
    assert offer.kind == "none"
    assert "dropped: 2.14.1 for ROCm 7.2 is the last" in offer.why


def test_vega_64_is_native_and_warned_of_rocblas() -> None:
    offer = ask("Vega 64", "2.12.1", "7.2")
    assert offer.kind == "native"
    assert "rocBLAS of ROCm 7.2 has no kernels for gfx900" in offer.why
    assert "pytorch#179865" in offer.why
    assert "rocBLAS" not in ask("Vega 64", "2.12.1", "7.1").why


def test_780m_gets_no_override_that_ends_in_page_faults() -> None:
    offer = ask("gfx1103", "2.12.1")
    assert (offer.kind, offer.variable) == ("none", "")
    assert "page faults" in offer.why
    assert ask("gfx1103", "2.13.0").kind == "native"


def test_rx_5700_xt_needs_a_build_of_its_own() -> None:
    assert ask("RX 5700 XT", "2.6.0").why.startswith("never among the targets")
    own = ask("RX 5700 XT", "2.6.0", place="debian-trixie")
    assert (own.kind, own.arch) == ("native", "gfx1010")


def test_strix_halo_compiles_where_rocblas_would_end_the_process() -> None:
    offer = ask("gfx1151", "2.6.0", place="debian-trixie")
    assert offer.kind == "none"
    assert "first matrix product" in offer.why


def test_an_image_whose_rocblas_nobody_read_says_so() -> None:
    image = dataclasses.replace(MATRIX.image("debian-trixie"), rocblas=())
    matrix = dataclasses.replace(MATRIX, images={**MATRIX.images, image.name: image})
    (found,) = show.for_gpu(matrix, "RX 6600", [matrix.release("minitorch")]).values()
    assert "was not read" in found[0].why
    assert (found[0].kind, found[0].arch) == ("override", "gfx1030")


def test_a_name_for_two_chips_is_answered_twice_and_an_unknown_one_refused() -> None:
    found = show.for_gpu(MATRIX, "RX 6750 GRE", [MATRIX.release("2.6.0")])
    assert {card.gfx for card in found} == {"gfx1031", "gfx1032"}
    with pytest.raises(UnknownArch):
        show.for_gpu(MATRIX, "RX 99999", MATRIX.releases)


@pytest.mark.parametrize(
    ("rocm", "python", "expected"),
    [
        ("6.2", "", {"2.5.1", "2.6.0", "2.7.1"}),
        ("6.2.4", "", {"2.5.1", "2.6.0", "2.7.1"}),
        ("5.2", "", {"1.13.1"}),
        ("7.1", "3.13t", {"2.10.0", "2.11.0"}),
    ],
)
def test_releases_are_found_by_rocm_and_python(rocm: str, python: str, expected: set[str]) -> None:
    found = show.select(MATRIX, rocm=rocm, python=python)
    official = {
        r.version for r in found if r.facts and any(show._same(rocm, version) for version in r.facts.rocm.value or ())
    }
    assert official == expected


def test_a_filter_that_nothing_passes_says_what_there_is() -> None:
    with pytest.raises(Impossible, match=r"no release is for ROCm 4\.0 and Python 3\.13(?s:.)*7\.14 for that Python"):
        show.select(MATRIX, rocm="4.0", python="3.13")
    with pytest.raises(Impossible, match=r"there is Python 3\.7, 3\.8, .*3\.13, 3\.13t"):
        show.select(MATRIX, python="3.6")


def test_builds_in_images_without_the_python_are_left_out() -> None:
    (found,) = show.for_gpu(MATRIX, "gfx1030", [MATRIX.release("2.6.0")], python="3.12").values()
    places = {offer.place for offer in found}
    assert "debian-trixie" not in places
    assert all("3.12" in MATRIX.images[place].pythons for place in places - {OFFICIAL})


def test_the_details_show_every_cell_trap_and_build() -> None:
    release = MATRIX.release("2.6.0")
    assert release.facts
    rows = show.details(release)
    assert len(rows) == len(release.facts.cells()) + len(release.facts.traps) + len(release.builds)
    assert all(source for _, _, source in rows)
    assert ("ROCm versions that AMD supports the release on", "unknown") in {row[:2] for row in rows}


def test_the_summary_names_what_is_unknown() -> None:
    rows = {row[0]: row for row in show.summary(MATRIX, MATRIX.releases)}
    assert rows["pytorch-2.9.1"][1:3] == ("6.3, 6.4", "unknown")
    bare = [r for r in MATRIX.releases if not r.images]
    assert all(rows[r.name][-1] == "none" for r in bare)
