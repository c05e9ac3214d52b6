"""Wheels split into ROCm's base wheels and thin frameworks: installed, loaded cold, two over one base."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from installer.sources import WheelFile

from rocm_wheels.console import Console
from rocm_wheels.elf import ElfFile
from rocm_wheels.errors import BaseMismatch, LayersDiffer, NoRocm, UsageError
from rocm_wheels.layers import LayerOptions, make_layers, plan_layers
from rocm_wheels.layers.sdk import over_sdk
from rocm_wheels.verify import VerifyOptions, verify
from tests.layers_fixtures import ARCHS, Rocm, cold_load, make_framework
from tests.publish_wheels import sha256
from tests.wheel_fixtures import make_library, make_wheel

pytestmark = pytest.mark.integration
CONSOLE = Console(quiet=True)
BARE = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null", "HOME": "/nonexistent"}
UV = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-config", "--no-cache", "--no-index"]
BASE = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"  # has a user site
PIP = ["-m", "pip", "install", "--quiet", "--no-index", "--no-cache-dir", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layers")


@pytest.fixture(scope="module")
def rocm(root: Path) -> Rocm:
    return Rocm(root / "rocm")


@pytest.fixture(scope="module")
def fat(root: Path, rocm: Rocm) -> list[Path]:
    """Two frameworks; the second needs a library more than the first."""
    more = ("libamdhip64.so.5", "librocsolver.so.0")
    return [make_framework(root, rocm), make_framework(root, rocm, "other", needs=more)]


@pytest.fixture(scope="module")
def layered(root: Path, fat: list[Path]) -> Path:
    make_layers(fat, LayerOptions(), root / "layered", CONSOLE)
    return root / "layered"


def find(folder: Path, name: str) -> Path:
    (wheel,) = folder.glob(f"{name}-*.whl")
    return wheel


def metadata(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return archive.read(name).decode().splitlines()


def members(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_every_file_is_in_one_wheel_where_its_reader_looks(layered: Path) -> None:
    assert members(find(layered, "rocm_layers_core")) == {
        f"_rocm_layers_core/lib/{name}" for name in ("libamdhip64.so.5", "libamd_comgr.so.2", "libnuma.so.1")
    }
    assert members(find(layered, "rocm_layers_libraries")) == {
        "_rocm_layers_libraries/lib/librocblas.so.0",
        "_rocm_layers_libraries/lib/librocsolver.so.0",
        "_rocm_layers_libraries/lib/rocblas/2.47.0/library/TensileLibrary.dat",
    }
    for arch in ARCHS:
        assert members(find(layered, f"rocm_layers_device_{arch}")) == {
            f"_rocm_layers_libraries/lib/rocblas/2.47.0/library/TensileLibrary_{arch}.co"
        }
    assert members(find(layered, "demo")) == {"demo/__init__.py", "demo/_C.so", "demo/lib/libdemo_hip.so"}


def test_every_wheel_is_valid_and_pins_exactly(layered: Path) -> None:
    for wheel in layered.glob("*.whl"):
        with WheelFile.open(wheel) as source:
            source.validate_record(validate_contents=True)
    version = find(layered, "rocm_layers_core").name.split("-")[1]
    assert version.startswith("5.7+b")
    pins = [line for line in metadata(find(layered, "demo")) if line.startswith("Requires-Dist")]
    layers = ["core", "libraries", *(f"device-{arch}" for arch in ARCHS)]
    assert pins == [f"Requires-Dist: rocm-layers-{layer}=={version}" for layer in layers]
    assert f"Requires-Dist: rocm-layers-core=={version}" in metadata(find(layered, "rocm_layers_libraries"))


def test_no_name_is_one_of_amds(layered: Path) -> None:
    names = {n.partition("/")[0] for wheel in layered.glob("*.whl") for n in zipfile.ZipFile(wheel).namelist()}
    assert not [n for n in names if "rocm_sdk" in n or n.startswith("rocm-")]


def test_licences_and_sbom_go_with_the_files(layered: Path, fat: list[Path]) -> None:
    with zipfile.ZipFile(find(layered, "rocm_layers_libraries")) as archive:
        info = next(n.partition("/")[0] for n in archive.namelist() if ".dist-info" in n)
        assert archive.read(f"{info}/licenses/rocm/librocblas0.txt") == b"the licence of rocBLAS\n"
        (component,) = json.loads(archive.read(f"{info}/sboms/rocm-wheels.cdx.json"))["components"]
    assert component["properties"][0]["value"] == "_rocm_layers_libraries/lib/librocblas.so.0"
    with zipfile.ZipFile(find(layered, "demo")) as archive:
        kept = {n.partition("/")[2] for n in archive.namelist() if ".dist-info/" in n}
    assert kept == {"METADATA", "WHEEL", "RECORD", "licenses/LICENSE"}


def test_the_same_wheels_give_the_same_bytes(root: Path, layered: Path, fat: list[Path]) -> None:
    make_layers(fat[::-1], LayerOptions(), root / "again", CONSOLE)
    assert {p.name: sha256(p) for p in (root / "again").iterdir()} == {p.name: sha256(p) for p in layered.iterdir()}


LAYOUTS = ["venv", "venv --copies", "uv", "uv symlinks", "--target", "--user"]


def install(layout: str, layered: Path, folder: Path, *names: str) -> Path:
    """Install ``names`` by one command; returns the directory of their packages."""
    find_links = ["--find-links", str(layered)]
    if layout == "--target":
        command = [sys.executable, *PIP, "--target", str(folder / "site"), *find_links, *names]
        subprocess.run(command, check=True, env=BARE)
        return folder / "site"
    if layout == "--user":
        command = [str(BASE), *PIP, "--user", "--ignore-installed", "--break-system-packages", *find_links, *names]
        subprocess.run(command, check=True, env={**BARE, "PYTHONUSERBASE": str(folder / "user")})
        return next((folder / "user" / "lib").glob("python*/site-packages"))
    copies = ["--copies"] if "copies" in layout else []
    subprocess.run([sys.executable, "-m", "virtualenv", "-q", *copies, folder / "env"], check=True)
    python = folder / "env" / "bin" / "python"
    if layout.startswith("uv"):
        mode = ["--link-mode", "symlink"] if "symlinks" in layout else []
        uv = [word for word in UV if not (mode and word == "--no-cache")]  # links need something to lead to
        command = [*uv, *mode, "--python", str(python), *find_links, *names]
        subprocess.run(command, check=True, env={**BARE, "UV_CACHE_DIR": str(folder / "cache")})
    else:
        subprocess.run([str(python), *PIP, *find_links, *names], check=True, env=BARE)
    return next((folder / "env" / "lib").glob("python*/site-packages"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_library_loads_cold_and_finds_its_data(layout: str, layered: Path, tmp_path: Path) -> None:
    if layout == "--user" and subprocess.run([BASE, "-m", "pip", "--version"], capture_output=True).returncode:
        pytest.skip("the Python below this environment has no pip, and an environment takes no --user")
    site = install(layout, layered, tmp_path, "demo")
    libraries = [p for p in site.rglob("*.so*") if p.parent.name == "lib" or p.name == "_C.so"]
    assert len(libraries) == 7
    for library in libraries:
        loaded = {path for path in cold_load(library) if "rocm" in path or "demo" in path}
        assert loaded and all(path.startswith((str(site), str(tmp_path / "cache"))) for path in loaded)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import demo, ctypes;"
        "here = ctypes.CDLL(None); blas = ctypes.CDLL(sys.argv[1] + '/_rocm_layers_libraries/lib/librocblas.so.0');"
        f"print([blas.has_data(a) for a in {[a.encode() for a in ARCHS]}], blas.opens_comgr())"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code, site], capture_output=True, text=True, env={})
    assert done.stdout == "[1, 1] 1\n", done.stderr


def test_two_frameworks_in_one_process_share_one_copy(layered: Path, tmp_path: Path) -> None:
    site = install("venv", layered, tmp_path, "demo", "other")
    code = (
        "import demo, other; print('\\n'.join(sorted({l.split()[-1] for l in open('/proc/self/maps') if '.so' in l})))"
    )
    python = tmp_path / "env" / "bin" / "python"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, env={}, check=True)
    mapped = [line for line in done.stdout.splitlines() if line.startswith(str(site))]
    assert len([m for m in mapped if "libamdhip64" in m]) == 1
    assert len([m for m in mapped if m.endswith("_C.so")]) == 2


def test_another_rocm_in_ld_library_path_does_not_win(layered: Path, tmp_path: Path) -> None:
    site = install("venv", layered, tmp_path, "demo")
    foreign = Rocm(tmp_path / "foreign").folder
    loaded = cold_load(site / "demo" / "_C.so", LD_LIBRARY_PATH=str(foreign))
    assert not [path for path in loaded if path.startswith(str(foreign))]


def test_wheels_of_different_rocms_are_refused(root: Path, fat: list[Path], tmp_path: Path) -> None:
    stranger = make_framework(tmp_path, Rocm(tmp_path / "rocm", salt="another build"), "stranger")
    with pytest.raises(LayersDiffer, match=r"demo-.* and stranger-.* _rocm_layers_core/lib/libamdhip64.so.5"):
        plan_layers([fat[0], stranger], LayerOptions())


def test_frameworks_of_different_bases_do_not_install_together(layered: Path, tmp_path: Path) -> None:
    stranger = make_framework(tmp_path, Rocm(tmp_path / "rocm", salt="another build"), "stranger")
    make_layers([stranger], LayerOptions(), tmp_path / "layers", CONSOLE)
    links = ["--find-links", str(layered), "--find-links", str(tmp_path / "layers")]
    words = [*PIP, "--dry-run", *links, "demo", "stranger"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=BARE)
    assert done.returncode and "conflicting dependencies" in done.stderr


def test_a_later_framework_is_laid_over_the_base_that_is_there(rocm: Rocm, layered: Path, tmp_path: Path) -> None:
    base = tuple(layered.glob("rocm_layers_*.whl"))
    wheels = [
        make_framework(tmp_path, rocm, "late"),
        make_framework(tmp_path, rocm, "built", fat=False, tag="cp399-cp399-linux_x86_64"),
    ]
    make_layers(wheels, LayerOptions(base=base), tmp_path / "out", CONSOLE)
    assert sorted(p.name.partition("-")[0] for p in (tmp_path / "out").iterdir()) == ["built", "late"]
    assert [m for m in metadata(find(tmp_path / "out", "late")) if "rocm-layers" in m] == [
        m for m in metadata(find(layered, "demo")) if "rocm-layers" in m
    ]
    with zipfile.ZipFile(find(tmp_path / "out", "built")) as archive:
        elf = ElfFile.parse(archive.read("built/lib/libbuilt_hip.so"), "")
    layers = [f"$ORIGIN/../../_rocm_layers_{name}/lib" for name in ("core", "libraries")]
    assert (elf.rpath, elf.runpath) == (":".join(["$ORIGIN", *layers]), None)


def test_a_base_that_lacks_a_library_or_has_another_build_is_refused(
    rocm: Rocm, fat: list[Path], layered: Path, tmp_path: Path
) -> None:
    base = tuple(layered.glob("rocm_layers_*.whl"))
    make_library(rocm.folder, "librocfft.so.0")
    needs_more = make_framework(tmp_path, rocm, "fft", needs=("librocfft.so.0",), fat=False)
    (rocm.folder / "librocfft.so.0").unlink()
    with pytest.raises(BaseMismatch, match=r"fft-.* needs librocfft.so.0, which the base 5.7\+b"):
        plan_layers([needs_more], LayerOptions(base=base))
    stranger = make_framework(tmp_path, Rocm(tmp_path / "rocm", salt="another build"), "stranger")
    with pytest.raises(BaseMismatch, match=r"another libamdhip64.so.5 than the one in the base"):
        plan_layers([stranger], LayerOptions(base=base))
    with pytest.raises(BaseMismatch, match="no base wheel"):
        plan_layers(fat, LayerOptions(base=(fat[0],)))


def test_data_that_the_base_lacks_is_not_dropped_in_silence(rocm: Rocm, layered: Path, tmp_path: Path) -> None:
    base = tuple(p for p in layered.glob("rocm_layers_*.whl") if "gfx1100" not in p.name)
    with pytest.raises(BaseMismatch, match=r"late-.* carries late/.*TensileLibrary_gfx1100.co, which the base 5.7"):
        plan_layers([make_framework(tmp_path, rocm, "late")], LayerOptions(base=base))


def test_libraries_in_a_directory_of_their_own_are_found_there(tmp_path: Path) -> None:
    """AMD's SDK keeps what it took of the system in rocm_sysdeps/lib."""
    rocm = Rocm(tmp_path / "rocm")
    sysdep = make_library(tmp_path, "librocm_sysdeps_elf.so.1")
    wheel = make_framework(tmp_path, rocm, needs=("libamdhip64.so.5", "../librocm_sysdeps_elf.so.1"))
    files = {name: data for name, data in contents(wheel).items() if ".dist-info/" not in name}
    files["demo/lib/rocm_sysdeps/lib/librocm_sysdeps_elf.so.1"] = sysdep.read_bytes()
    fat = make_wheel(tmp_path / "again", "demo", "1.0+rocm5.7", wheel.name.split("-", 2)[2][:-4], files)
    make_layers([fat], LayerOptions(), tmp_path / "out", CONSOLE)
    site = tmp_path / "site"
    for path in (tmp_path / "out").glob("*.whl"):
        zipfile.ZipFile(path).extractall(site)
    assert any("/_rocm_layers_libraries/lib/rocm_sysdeps/lib/" in path for path in cold_load(site / "demo" / "_C.so"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_plan_for_wheels_without_rocm_says_what_to_do(rocm: Rocm, tmp_path: Path) -> None:
    with pytest.raises(NoRocm, match="none of these wheels carries ROCm yet"):
        plan_layers([make_framework(tmp_path, rocm, fat=False)], LayerOptions())


def test_a_wheel_that_has_no_rocm_takes_that_of_this_machine_once(rocm: Rocm, tmp_path: Path) -> None:
    built = [
        make_framework(tmp_path, rocm, fat=False),
        make_framework(tmp_path, rocm, fat=False, tag="cp399-cp399-linux_x86_64"),
    ]
    options = LayerOptions(archs=("gfx1030",), lib_dirs=(rocm.folder,))
    report = make_layers(built, options, tmp_path / "out", CONSOLE)
    names = [name.rpartition("-")[0] for name, _ in report.wheels]
    assert len(names) == 5 and sum(n.startswith("demo-") for n in names) == 2
    assert not [n for n in names if "gfx1100" in n]
    assert report.fat is None


def test_what_has_nothing_to_do_with_rocm_is_refused(rocm: Rocm, tmp_path: Path) -> None:
    library = make_library(tmp_path, "libplain.so").read_bytes()
    with pytest.raises(NoRocm, match="neither carries nor needs"):
        plan_layers([make_wheel(tmp_path / "in", "plain", files={"plain/lib/libplain.so": library})], LayerOptions())
    hashed = {"plain.libs/libamdhip64-14d55e83.so.6": library}
    with pytest.raises(NoRocm, match="under hashed names"):
        plan_layers([make_wheel(tmp_path / "in", "plain", "2", files=hashed)], LayerOptions())


def test_device_data_is_left_to_extras_when_asked(fat: list[Path], tmp_path: Path) -> None:
    make_layers(fat[:1], LayerOptions(device_extras=True), tmp_path, CONSOLE)
    lines = metadata(find(tmp_path, "demo"))
    assert [line for line in lines if line.startswith("Provides-Extra")] == [f"Provides-Extra: {a}" for a in ARCHS]
    assert [line for line in lines if 'extra == "gfx1030"' in line]
    assert len([line for line in lines if line.startswith("Requires-Dist") and "extra" not in line]) == 2


def test_the_manifest_of_the_build_goes_along(rocm: Rocm, tmp_path: Path) -> None:
    wheel = make_framework(tmp_path, rocm)
    wheel.with_suffix(".manifest.json").write_text('{"rocm": "5.7"}')
    make_layers([wheel], LayerOptions(), tmp_path / "out", CONSOLE)
    (manifest,) = (tmp_path / "out").glob("*.json")
    assert manifest.name.startswith("demo-1.0+rocm5.7-") and manifest.read_text() == '{"rocm": "5.7"}'


def test_the_report_counts_bytes(root: Path, fat: list[Path], tmp_path: Path) -> None:
    report = make_layers(fat, LayerOptions(), tmp_path, CONSOLE)
    assert report.fat == report.fat_install == sum(p.stat().st_size for p in fat)
    assert report.layered == report.layered_install == sum(p.stat().st_size for p in tmp_path.glob("*.whl"))
    assert report.layered < report.fat


def test_verify_finds_nothing_wrong_with_the_set(layered: Path) -> None:
    report = verify(sorted(layered.glob("*.whl")), VerifyOptions(), CONSOLE)
    assert report.ok, report.findings
    assert {w.profile for w in report.wheels if w.wheel.name.startswith("rocm_layers")} == {"rocm-base"}


def test_amds_sdk_is_required_where_the_release_fits(rocm: Rocm, tmp_path: Path) -> None:
    built = make_framework(tmp_path, rocm, fat=False)
    result = over_sdk(built, "5.7.1", tmp_path / "out", CONSOLE)
    with WheelFile.open(result) as source:
        source.validate_record(validate_contents=True)
    assert "Requires-Dist: rocm[libraries]==5.7.1" in metadata(result)
    assert not [line for line in metadata(result) if line.startswith("Requires-External")]
    with zipfile.ZipFile(result) as archive:
        elf = ElfFile.parse(archive.read("demo/lib/libdemo_hip.so"), "")
    assert "$ORIGIN/../../_rocm_sdk_core/lib" in str(elf.runpath)


def test_amds_sdk_of_another_release_or_beside_a_rocm_inside_is_refused(
    rocm: Rocm, fat: list[Path], tmp_path: Path
) -> None:
    built = make_framework(tmp_path, rocm, fat=False)
    with pytest.raises(BaseMismatch, match=r"was built for ROCm 5 .*the SDK would be 7.14.0"):
        over_sdk(built, "7.14.0", tmp_path / "out", CONSOLE)
    with pytest.raises(BaseMismatch, match="carries a ROCm of its own"):
        over_sdk(fat[0], "5.7.1", tmp_path / "out", CONSOLE)
    with pytest.raises(UsageError, match="is no release of ROCm"):
        over_sdk(built, "latest", tmp_path / "out", CONSOLE)
