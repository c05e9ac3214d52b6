"""Builder images: what their tag depends on, and what is checked before one is built."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from rocm_wheels import config
from rocm_wheels.build.base_image import bootstrap_command, ensure_base
from rocm_wheels.build.container import ContainerEngine
from rocm_wheels.build.image import DOCKER, check_host_tools, ensure_image, image_inputs, image_tag, prune_images
from rocm_wheels.console import Console
from rocm_wheels.errors import HostToolMissing, MatrixError, NoSpace, SettingError
from rocm_wheels.release import Image

IMAGE = Image(
    name="debian-trixie",
    dockerfile="debian-trixie.Dockerfile",
    base="docker.io/library/debian:trixie",
    suite="trixie",
    rocm="5.7",
    rocm_path="/usr",
    glibc="2.41",
    pythons=("3.11", "3.13", "3.14"),
    origin="test",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DOCKER, tmp_path / "docker"))


class StandIn(ContainerEngine):
    """An engine with a few images and no container."""

    def __init__(self, *, images: tuple[str, ...] = (), storage: Path = Path("/")) -> None:
        self.name = "stand-in"
        self.local = list(images)
        self.built: list[tuple[str, dict[str, Path]]] = []
        self.asked_to_pull: list[str] = []
        self._storage = storage

    def image_id(self, image: str) -> str | None:
        return "0123" if image in self.local else None

    def images(self, repository: str) -> list[str]:
        return [image for image in self.local if image.startswith(f"{repository}:")]

    def remove_image(self, image: str) -> None:
        self.local.remove(image)

    def pull(self, image: str, seconds: float) -> str:
        self.asked_to_pull.append(image)
        self.local.append(image)
        return ""

    def build(self, dockerfile: Path, tag: str, **options: object) -> None:
        secrets = options["secrets"]
        assert isinstance(secrets, dict)
        self.built.append((tag, secrets))
        self.local.append(tag)

    @property
    def storage(self) -> Path:
        return self._storage


def test_the_tag_names_the_image_and_twelve_digits_of_its_content() -> None:
    name, _, digest = image_tag(IMAGE).rpartition(":")
    assert name == "localhost/rocm-wheels/debian-trixie"
    assert len(digest) == 12
    assert int(digest, 16) >= 0


def test_every_copied_file_is_an_input() -> None:
    names = {str(path.relative_to(DOCKER)) for path in image_inputs(IMAGE)}
    assert names == {
        *("debian-trixie.Dockerfile", "install.sh", "pythons.sh", "unpack-python.sh"),
        *("tools-requirements.txt", "build-requirements.txt"),
        *(f"packages/{name}.txt" for name in ("cpython", "debian", "debian-trixie")),
    }


@pytest.mark.parametrize("name", [str(path.relative_to(DOCKER)) for path in image_inputs(IMAGE)])
def test_a_changed_input_changes_the_tag(folder: Path, name: str) -> None:
    before = image_tag(IMAGE, folder=folder)
    with (folder / name).open("a") as stream:
        stream.write("# changed\n")
    assert image_tag(IMAGE, folder=folder) != before


def test_another_base_changes_the_tag_and_a_foreign_file_does_not(folder: Path) -> None:
    before = image_tag(IMAGE, folder=folder)
    (folder / "README").write_text("not copied")
    assert image_tag(IMAGE, folder=folder) == before
    assert image_tag(dataclasses.replace(IMAGE, base="localhost/other:1"), folder=folder) != before


def test_a_copied_file_that_is_missing_is_named(folder: Path) -> None:
    (folder / "unpack-python.sh").unlink()
    with pytest.raises(MatrixError, match=r"unpack-python\.sh"):
        image_tag(IMAGE, folder=folder)


def test_a_missing_dockerfile_is_named(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match="debian-trixie.Dockerfile cannot be read"):
        image_tag(IMAGE, folder=tmp_path)


def test_an_image_that_is_there_is_not_built(tmp_path: Path) -> None:
    engine = StandIn(images=(image_tag(IMAGE),))
    reference = ensure_image(IMAGE, engine=engine, settings=_settings(tmp_path), console=Console(quiet=True))
    assert reference.tag == image_tag(IMAGE)
    assert reference.digest == "0123"
    assert not engine.built


def test_an_image_is_built_once_on_its_base_with_the_ca_bundle_as_secret(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("certificates")
    engine = StandIn()
    settings = _settings(tmp_path, ca_bundle=str(bundle))
    for _ in range(2):
        ensure_image(IMAGE, engine=engine, settings=settings, console=Console(quiet=True))
    assert engine.asked_to_pull == [IMAGE.base]
    assert engine.built == [(image_tag(IMAGE), {"ca_bundle": bundle})]


def test_a_ca_bundle_that_is_no_file_is_refused(tmp_path: Path) -> None:
    settings = _settings(tmp_path, ca_bundle=str(tmp_path / "none.pem"))
    with pytest.raises(SettingError, match=r"none\.pem"):
        ensure_image(IMAGE, engine=StandIn(), settings=settings, console=Console(quiet=True))


def test_a_full_disk_is_noticed_before_anything_is_pulled(tmp_path: Path) -> None:
    engine = StandIn(storage=tmp_path)
    huge = dataclasses.replace(IMAGE, gigabytes=1e9)
    with pytest.raises(NoSpace, match="GB free"):
        ensure_image(huge, engine=engine, settings=_settings(tmp_path), console=Console(quiet=True))
    assert not engine.asked_to_pull


def test_pruning_removes_old_tags_of_ours_only() -> None:
    old = "localhost/rocm-wheels/debian-trixie:0123456789ab"
    engine = StandIn(images=(old, image_tag(IMAGE), IMAGE.base))
    assert prune_images([IMAGE], engine=engine, console=Console(quiet=True)) == (old,)
    assert engine.local == [image_tag(IMAGE), IMAGE.base]


def test_a_base_that_is_there_is_not_pulled(tmp_path: Path) -> None:
    engine = StandIn(images=(IMAGE.base,))
    ensure_base(IMAGE, engine=engine, settings=_settings(tmp_path), console=Console(quiet=True))
    assert not engine.asked_to_pull


def test_the_bootstrap_uses_the_mirror_of_the_settings(tmp_path: Path) -> None:
    tar = tmp_path / "trixie.tar"
    plain = bootstrap_command(IMAGE, tar, _settings(tmp_path))
    assert plain == ["mmdebstrap", "--variant=minbase", "trixie", str(tar)]
    mirror = _settings(tmp_path, base_mirror="https://mirror.example/debian")
    assert bootstrap_command(IMAGE, tar, mirror)[-1] == "https://mirror.example/debian"
    assert "--include=ca-certificates" in bootstrap_command(IMAGE, tar, mirror)


def test_a_host_without_hipcc_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostToolMissing, match="hipcc, cmake"):
        check_host_tools()


def _settings(tmp_path: Path, **values: str) -> config.Settings:
    return config.load({"cache_dir": str(tmp_path / "cache"), "ca_bundle": "", **values})
