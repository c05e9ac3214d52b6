import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from rocm_wheels.repair.facts import ElfFacts
from rocm_wheels.repair.model import Need
from rocm_wheels.repair.providers import is_rocm, is_torch, rocm_major
from rocm_wheels.repair.rpath import search_path
from rocm_wheels.wheel.budget import Budget
from rocm_wheels.wheel.metadata import file_name, headers, with_headers, with_tags
from rocm_wheels.wheel.tags import find_policy, measure, policies

FOLDERS = {"torch", "torch/lib"}


def _path(
    member: str, *where: str, old: str = "", layouts: tuple[str, ...] = (), absolute: tuple[str, ...] = ()
) -> str:
    needs = [Need(w.rpartition("/")[2], "wheel", w) for w in where]
    return search_path(member, needs, old, folders=FOLDERS, layouts=layouts, absolute=absolute)


def _facts(name: str, *needed: str, **versions: tuple[str, ...]) -> ElfFacts:
    return ElfFacts(name, needed, None, None, None, {"libc.so.6": versions.get("libc", ())}, False, 1)


def test_the_path_leads_to_the_needs_with_origin_first() -> None:
    assert _path("torch/_C.so", "torch/lib/libtorch.so", "torch/libx.so") == "$ORIGIN:$ORIGIN/lib"
    assert _path("torch/lib/libtorch.so", "torch/lib/libc10.so") == "$ORIGIN"
    assert _path("top.so", "torch/lib/libc10.so") == "$ORIGIN/torch/lib"


def test_paths_of_the_build_host_and_empty_ones_go() -> None:
    assert _path("torch/_C.so", old="/build/lib::$ORIGIN/lib:relative:/opt/rocm/lib") == "$ORIGIN/lib"


def test_a_path_into_another_package_stays_and_absolute_ones_come_last() -> None:
    path = _path("torch/lib/libx.so", old="$ORIGIN/../../nvidia/lib", layouts=("sdk/lib",), absolute=("/opt/rocm/lib",))
    assert path == "$ORIGIN/../../nvidia/lib:$ORIGIN/../../sdk/lib:/opt/rocm/lib"


ENTRY = st.sampled_from(
    ["", "/b", "$ORIGIN", "$ORIGIN/lib", "${ORIGIN}/lib/", "$ORIGIN/..", "$ORIGIN/../../n/lib", "x"]
)


@given(st.lists(ENTRY, max_size=6), st.sampled_from(["torch/_C.so", "torch/lib/liba.so", "top.so"]), st.booleans())
def test_setting_a_path_twice_changes_nothing(old: list[str], member: str, rocm: bool) -> None:
    layouts = ("sdk/lib",) if rocm else ()
    absolute = ("/opt/rocm/lib",) if rocm else ()
    first = _path(member, "torch/lib/libc10.so", old=":".join(old), layouts=layouts, absolute=absolute)
    assert _path(member, "torch/lib/libc10.so", old=first, layouts=layouts, absolute=absolute) == first


def test_a_newer_symbol_gives_a_newer_tag_and_names_what_forbids_the_older() -> None:
    measured = measure([_facts("demo/a.so", "libc.so.6", libc=("GLIBC_2.2.5", "GLIBC_2.28"))])
    assert measured.policy.tag == "manylinux_2_28_x86_64"
    assert str(measured.blockers[0]) == "demo/a.so needs GLIBC_2.28 of libc.so.6"


def test_a_library_that_nobody_brings_forbids_every_promise() -> None:
    elf = _facts("demo/a.so", "libc.so.6", "libodd.so.1")
    assert measure([elf], elsewhere=()).policy.name == "linux"
    assert measure([elf], elsewhere={"libodd.so.1"}).policy is policies()[0]


def test_policies_are_found_by_old_names() -> None:
    found = find_policy("manylinux2014_x86_64")
    assert found is not None
    assert found.name == "manylinux_2_17"


def test_libraries_are_told_apart() -> None:
    assert all(map(is_rocm, ("libamdhip64.so.5", "librocblas.so.0", "libMIOpen.so", "libhiprtc-builtins.so.5")))
    assert not any(map(is_rocm, ("libnuma.so.1", "libc10_hip.so", "libhip.so")))
    assert is_torch("libtorch_hip.so")
    assert rocm_major(["libamdhip64.so.5", "librocblas.so.0"]) == 5
    assert rocm_major(["librocblas.so.0"]) is None


def test_metadata_gets_a_field_and_keeps_every_other_byte() -> None:
    text = "Metadata-Version: 2.1\nName: demo\n\nBody: Name\n"
    added = with_headers(text, "Requires-External", ["libamdhip64.so.5"])
    assert added == "Metadata-Version: 2.1\nName: demo\nRequires-External: libamdhip64.so.5\n\nBody: Name\n"
    assert with_headers(added, "Requires-External", ["libamdhip64.so.5"]) == added
    assert headers(added, "Name") == ["demo"]


def test_tags_of_wheel_are_replaced_where_they_stood() -> None:
    text = "Wheel-Version: 1.0\nTag: py3-none-linux_x86_64\nBuild: 1\n"
    assert with_tags(text, ["py3-none-any"]) == "Wheel-Version: 1.0\nTag: py3-none-any\nBuild: 1\n"
    assert file_name("demo-1-py3-none-linux_x86_64.whl", ["a", "b"]) == "demo-1-py3-none-a.b.whl"


def test_a_budget_is_never_exceeded_and_a_piece_larger_than_it_runs_alone() -> None:
    budget, held, most = Budget(10), [0], [0]

    def work(size: int) -> None:
        with budget.take(size):
            held[0] += min(size, 10)
            most[0] = max(most[0], held[0])
            time.sleep(0.005)
            held[0] -= min(size, 10)

    threads = [threading.Thread(target=work, args=(size,)) for size in (3, 50, 4, 4, 9, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert not any(thread.is_alive() for thread in threads)
    assert most[0] <= 10
