"""What a row says of one of its images, and what it takes from a Debian package beside the original source."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from pathlib import Path

import pytest

from rocm_wheels.build.image import DOCKER
from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import MatrixError, PinMismatch
from rocm_wheels.release import Source, load_matrix
from rocm_wheels.release.load import DATA
from rocm_wheels.source import debian


def recipe_cache(image: str) -> dict[str, str]:
    matrix = load_matrix()
    return dict(matrix.release("2.6.0").on(matrix.images[image]).recipe.required_cache)


def test_each_image_declares_which_libraries_pytorch_must_find_in_it() -> None:
    trixie, sid = recipe_cache("debian-trixie"), recipe_cache("debian-sid")
    assert trixie["USE_ROCM"] == sid["USE_ROCM"] == "ON"
    for library in ("miopen", "hipblaslt"):
        assert trixie[f"{library}_DIR"].endswith("NOTFOUND")
        assert sid[f"{library}_DIR"].endswith(f"/cmake/{library}")


def test_both_images_share_the_rest_of_the_row() -> None:
    matrix = load_matrix()
    trixie, sid = (matrix.release("2.6.0").on(matrix.images[name]) for name in ("debian-trixie", "debian-sid"))
    assert trixie.recipe.env == sid.recipe.env
    assert trixie.source == sid.source
    assert trixie.cost == sid.cost


def test_a_table_for_an_image_that_the_row_does_not_name_is_refused(tmp_path: Path) -> None:
    data = Path(shutil.copytree(DATA, tmp_path / "data"))
    with (data / "builds" / "pytorch.toml").open("a") as stream:
        stream.write('\n[build.on.debian-trixie.env]\nX = "1"\n')
    with pytest.raises(MatrixError, match="on.debian-trixie"):
        load_matrix(data)


def debian_package(folder: Path, packaging: dict[str, str]) -> Source:
    """A source package of one original file and a packaging archive with the files of ``packaging``."""
    folder.mkdir()
    lines = []
    for name, files in (("demo_1.orig.tar.gz", {"demo-1/a.txt": "a"}), ("demo_1-1.debian.tar.xz", packaging)):
        with tarfile.open(folder / name, "w:xz" if name.endswith("xz") else "w:gz") as tar:
            for inside, text in files.items():
                (folder / "content").write_text(text)
                tar.add(folder / "content", inside)
        lines.append(f" {hashlib.sha256((folder / name).read_bytes()).hexdigest()} 1 {name}\n")
    (folder / "content").unlink()
    dsc = folder / "demo_1-1.dsc"
    dsc.write_text("Format: 3.0 (quilt)\nChecksums-Sha256:\n" + "".join(lines) + "Files:\n")
    parts = (("third_party/kineto", "kineto-1"),)
    digest = hashlib.sha256(dsc.read_bytes()).hexdigest()
    return Source(kind="debian", package="demo", version="1-1", suite="trixie", sha256=digest, parts=parts)


def lay(source: Source, tmp_path: Path) -> Path:
    settings = Settings(cache_dir=str(tmp_path / "cache"), source_mirror=str(tmp_path / "mirror"))
    debian.lay(source, tmp_path / "tree", settings=settings, console=Console(quiet=True))
    return tmp_path / "tree"


def test_a_part_of_the_packaging_is_laid_where_the_source_expects_it(tmp_path: Path) -> None:
    source = debian_package(tmp_path / "mirror", {"debian/kineto-1/b.h": "b", "debian/rules": "r"})
    tree = lay(source, tmp_path)
    files = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    assert files == {"a.txt", "third_party/kineto/b.h"}


def test_a_part_that_the_packaging_does_not_have_is_named(tmp_path: Path) -> None:
    source = debian_package(tmp_path / "mirror", {"debian/rules": "r", "debian/control": "c"})
    with pytest.raises(PinMismatch, match=r"no directory kineto-1.*third_party/kineto"):
        lay(source, tmp_path)


@pytest.mark.parametrize("name", ["ubuntu-22.04", "manylinux_2_28"])
def test_an_image_of_amds_packages_installs_the_rocm_of_its_row(name: str) -> None:
    image = load_matrix().images[name]
    text = (DOCKER / image.dockerfile).read_text("utf-8")
    assert f"ARG ROCM={image.rocm}\n" in text
    assert f"FROM {image.base}\n" in text


def test_bases_that_only_a_registry_has_are_pinned_by_digest() -> None:
    for image in load_matrix().images.values():
        assert image.suite or "@sha256:" in image.base
