"""Members that change: whichever way they take, the result is the file that editing on disk gives."""

import random
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from installer.sources import WheelFile

from rocm_wheels.console import Console
from rocm_wheels.elf.anatomy import Unpatchable
from rocm_wheels.elf.edit import Edit, apply_edit
from rocm_wheels.errors import BrokenWheel
from rocm_wheels.repair import RepairOptions, apply_plan, plan_repair
from rocm_wheels.repair.model import ElfPlan, RepairPlan
from rocm_wheels.wheel.codec import Extent, Packed
from rocm_wheels.wheel.writer import WheelWriter
from tests.elf_fixtures import bundle, make_library
from tests.wheel_fixtures import make_wheel

pytestmark = pytest.mark.integration
CONSOLE = Console(quiet=True)
MEMBER = "demo/lib/libbig.so"
EDIT = Edit(rpath="$ORIGIN:" + ":".join(f"$ORIGIN/../../place-{n}/lib" for n in range(20)), soname="libbig.so.7")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of some 12 MB with device code, data that deflates and data that does not."""
    folder = tmp_path_factory.mktemp("made")
    seed = random.Random(5)
    words = b"".join(b"%d words and words " % seed.randrange(1 << 30) for _ in range(200_000))
    (folder / "blob").write_bytes(words + seed.randbytes(6 << 20) + words[::-1])
    code = f"""
        __asm__(".section .rodata\\n.globl blob\\nblob: .incbin \\"{folder / "blob"}\\"\\n.previous");
        extern const char blob[]; int answer(void) {{ return blob[0] == '{chr(words[0])}'; }}
    """
    return make_library(folder, "libbig.so", code=code, rpath="/build/lib", bundles=[bundle(["gfx1030"])] * 9)


def _plan(wheel: Path, edit: Edit = EDIT, memory_mib: int = 512) -> RepairPlan:
    plan = plan_repair(wheel, RepairOptions(mode="retag"), memory_mib=memory_mib)
    return replace(plan, elves=(ElfPlan(MEMBER, (), edit, ()),))


def _wheel(folder: Path, library: Path, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    return make_wheel(folder, files={MEMBER: library.read_bytes(), "demo/__init__.py": b""}, compression=compression)


def _result(plan: RepairPlan, dest: Path) -> bytes:
    result = apply_plan(plan, dest, CONSOLE)
    with WheelFile.open(result) as source:
        source.validate_record(validate_contents=True)
    subprocess.run(["unzip", "-tq", result], check=True, capture_output=True)
    with zipfile.ZipFile(result) as archive:
        return archive.read(MEMBER)


def _edited(library: Path, dest: Path) -> bytes:
    file = dest / "edited.so"
    file.write_bytes(library.read_bytes())
    apply_edit(file, EDIT)
    return file.read_bytes()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Packed]]:
    """What the writer was given, by member."""
    found: dict[str, Packed] = {}
    add = WheelWriter.add_packed

    def note(self: WheelWriter, name: str, packed: Packed, *, mode: int = 0o644) -> None:
        found[name] = packed
        add(self, name, packed, mode=mode)

    monkeypatch.setattr(WheelWriter, "add_packed", note)
    yield found


def test_a_big_library_is_spliced_and_loads(tmp_path: Path, library: Path, written: dict[str, Packed]) -> None:
    wheel = _wheel(tmp_path, library)
    content = _result(_plan(wheel), tmp_path / "out")
    assert content == _edited(library, tmp_path)
    parts = written[MEMBER].parts
    kept = sum(part.size for part in parts if isinstance(part, Extent))
    assert kept > 0.9 * written[MEMBER].stored
    file = tmp_path / "libbig.so"
    file.write_bytes(content)
    code = "import ctypes,sys; print(ctypes.CDLL(sys.argv[1]).answer())"
    done = subprocess.run([sys.executable, "-c", code, file], env={}, capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr


def test_a_stored_library_is_deflated_whole(tmp_path: Path, library: Path, written: dict[str, Packed]) -> None:
    wheel = _wheel(tmp_path, library, zipfile.ZIP_STORED)
    assert _result(_plan(wheel), tmp_path / "out") == _edited(library, tmp_path)
    assert not any(isinstance(part, Extent) for part in written[MEMBER].parts)
    assert [p.suffix for p in (tmp_path / "out").iterdir()] == [".whl"]


@pytest.mark.parametrize("memory", [0, 1])
def test_little_memory_changes_nothing_of_the_result(tmp_path: Path, library: Path, memory: int) -> None:
    plan = _plan(_wheel(tmp_path, library), memory_mib=memory)
    assert bool(plan.anatomies) == bool(memory)
    result = apply_plan(plan, tmp_path / "out", CONSOLE, memory_mib=memory)
    with zipfile.ZipFile(result) as archive:
        assert archive.read(MEMBER) == _edited(library, tmp_path)


def test_what_cannot_be_edited_in_place_goes_to_patchelf(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Unpatchable("no")

    monkeypatch.setattr("rocm_wheels.repair.rewrite.patches", refuse)
    monkeypatch.setattr("rocm_wheels.elf.edit.patches", refuse)
    called = []
    monkeypatch.setattr("rocm_wheels.elf.edit.run_patchelf", lambda path, edit, _: called.append(edit))
    assert _result(_plan(_wheel(tmp_path, library)), tmp_path / "out") == library.read_bytes()
    assert called == [EDIT]


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_a_library_that_record_does_not_vouch_for_is_not_edited(
    tmp_path: Path, library: Path, compression: int
) -> None:
    record = f"{MEMBER},sha256=AAAA,5\ndemo/__init__.py,,\ndemo-1.0.dist-info/RECORD,,\n".encode()
    files = {MEMBER: library.read_bytes(), "demo/__init__.py": b""}
    wheel = make_wheel(tmp_path, files=files, record=record, compression=compression)
    with pytest.raises(BrokenWheel, match="vouches"):
        apply_plan(_plan(wheel), tmp_path / "out", CONSOLE)
    assert not list((tmp_path / "out").iterdir())
