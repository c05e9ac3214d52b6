from __future__ import annotations

import pytest

from rocm_wheels.errors import UnknownArch
from rocm_wheels.gpu import KNOWN_TARGETS, cards, check_arch
from rocm_wheels.gpu.cards import all_cards, card, find, serve


@pytest.mark.parametrize(
    ("text", "gfx"),
    [
        ("RX 6600", "gfx1032"),
        ("rx6600", "gfx1032"),
        ("AMD Radeon RX 6700 XT", "gfx1031"),
        ("AMD Radeon(TM) RX 7900 XTX Graphics", "gfx1100"),
        ("MI210", "gfx90a"),
        ("Instinct MI300X", "gfx942"),
        ("Radeon VII", "gfx906"),
        ("780M", "gfx1103"),
        ("gfx1032", "gfx1032"),
        ("GFX90A:xnack-", "gfx90a"),
    ],
)
def test_a_card_is_found_by_product_or_target(text: str, gfx: str) -> None:
    assert [c.gfx for c in find(text)] == [gfx]


def test_a_name_of_two_chips_gives_both() -> None:
    assert [c.gfx for c in find("RX 6750 GRE")] == ["gfx1031", "gfx1032"]
    assert [c.gfx for c in find("RX 6750 GRE 10GB")] == ["gfx1032"]


@pytest.mark.parametrize(("text", "hint"), [("RX 6601", "RX 6600"), ("gfx1039", "gfx1036"), ("MI201", "MI210")])
def test_an_unknown_card_names_the_nearest(text: str, hint: str) -> None:
    with pytest.raises(UnknownArch, match=hint):
        find(text)


@pytest.mark.parametrize("text", ["", "radeon", "AMD graphics card"])
def test_a_name_that_says_nothing_finds_nothing(text: str) -> None:
    with pytest.raises(UnknownArch, match="give its target"):
        find(text)


def test_the_table_has_every_target_and_no_other() -> None:
    assert {c.gfx for c in all_cards()} == set(KNOWN_TARGETS)


def test_every_value_of_the_table_has_a_source() -> None:
    bare = [
        c.gfx for c in all_cards() if (c.names or c.status or c.generic or c.override or c.refuse) and not c.sources
    ]
    assert bare == []


def test_overrides_stay_within_the_sub_family() -> None:
    for each in all_cards():
        if each.override:
            assert card(each.override.arch).family == each.family != ""
            assert each.override.arch == "gfx" + each.override.value.replace(".", "")


def test_generic_targets_are_targets_that_a_build_takes() -> None:
    assert [check_arch(c.generic) for c in all_cards() if c.generic]


@pytest.mark.parametrize(
    ("gfx", "archs", "kind", "arch", "variable"),
    [
        ("gfx1100", ["gfx1100"], "native", "gfx1100", ""),
        ("gfx1032", ["gfx1030", "gfx1100"], "override", "gfx1030", "HSA_OVERRIDE_GFX_VERSION=10.3.0"),
        ("gfx1032", ["gfx1030", "gfx10-3-generic"], "generic", "gfx10-3-generic", ""),
        ("gfx1032", ["gfx10-3-generic", "gfx1032"], "native", "gfx1032", ""),
        ("gfx908", ["gfx9-generic"], "none", "", ""),
        ("gfx1010", ["gfx1030"], "none", "", ""),
        ("gfx1151", ["gfx1100"], "none", "", ""),
        ("gfx1200", ["gfx1201"], "none", "", ""),
        ("gfx1033", ["gfx1030"], "none", "", ""),
        ("gfx1103", ["gfx1100"], "none", "", ""),
        ("gfx1103", ["gfx11-generic"], "generic", "gfx11-generic", ""),
        ("gfx1100", [], "none", "", ""),
        ("gfx9999", ["gfx1100"], "none", "", ""),
    ],
)
def test_code_runs_natively_by_generic_or_by_override_in_the_family(
    gfx: str, archs: list[str], kind: str, arch: str, variable: str
) -> None:
    serving = serve(gfx, archs)
    assert (serving.kind, serving.arch, serving.variable) == (kind, arch, variable)
    assert serving.why


@pytest.mark.parametrize(
    ("gfx", "archs", "kind", "variable"),
    [
        ("gfx90a", ["gfx90a:xnack-"], "native", ""),
        ("gfx90a", ["gfx90a:xnack+"], "native", "HSA_XNACK=1"),
        ("gfx90a", ["gfx90a:xnack+", "gfx90a:xnack-"], "native", ""),
        ("gfx90a", ["gfx90a:sramecc-"], "none", ""),
        ("gfx90a:sramecc-:xnack-", ["gfx90a:sramecc-"], "native", ""),
        ("gfx908", ["gfx908:xnack+"], "none", ""),
        ("gfx908:sramecc+:xnack+", ["gfx908:xnack+"], "native", ""),
        ("gfx90a:sramecc+:xnack-", ["gfx90a:xnack+"], "none", ""),
        ("gfx942", ["gfx9-4-generic:sramecc+:xnack-"], "generic", ""),
    ],
)
def test_target_features_must_match(gfx: str, archs: list[str], kind: str, variable: str) -> None:
    serving = serve(gfx, archs)
    assert (serving.kind, serving.variable) == (kind, variable)


def test_a_feature_that_depends_on_the_card_is_said_to() -> None:
    assert serve("gfx906", ["gfx906:sramecc+:xnack-"]).why == "if the card has sramecc on"


@pytest.mark.parametrize(
    ("gfx", "archs", "text"), [("gfx1103", ["gfx1100"], "page faults"), ("gfx1033", ["gfx1030"], "NaN")]
)
def test_a_bad_remedy_is_refused_with_its_reason(gfx: str, archs: list[str], text: str) -> None:
    assert text in serve(gfx, archs).why
    assert cards.card(gfx).refuse
