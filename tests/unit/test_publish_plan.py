"""What is decided before anything is sent: targets, order, closure, page parsing, tags."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import requests
from packaging.tags import Tag
from packaging.utils import NormalizedName, canonicalize_name
from twine.utils import DEFAULT_REPOSITORY, TEST_REPOSITORY

from rocm_wheels.config import Settings
from rocm_wheels.console import Console
from rocm_wheels.errors import (
    BrokenArchive,
    BrokenWheel,
    NameTaken,
    NoSpace,
    PublicIndexRefused,
    UnmetDependency,
    UploadRefused,
    UsageError,
)
from rocm_wheels.publish import publish
from rocm_wheels.publish.closure import check_closure
from rocm_wheels.publish.dist import in_dependency_order, open_dist
from rocm_wheels.publish.install import explain_tags, requirements_with_hashes
from rocm_wheels.publish.journal import Journal
from rocm_wheels.publish.simple import Index, cause, file_key, parse_page
from rocm_wheels.publish.target import parse_target
from tests.publish_wheels import make_wheel, sha256

CONSOLE = Console(quiet=True)


def nothing_listed(_: NormalizedName) -> tuple[str, ...]:
    return ()


@pytest.mark.parametrize("text", ["dir:/srv/wheels", "/srv/wheels", "dir:~/wheels", "./out"])
def test_paths_are_directories(text: str) -> None:
    directory = parse_target(text).directory
    assert directory is not None and directory.is_absolute()


@pytest.mark.parametrize("text", ["http://127.0.0.1:8080/", "https://wheels.example/upload", "team"])
def test_addresses_and_names_are_repositories(text: str) -> None:
    assert parse_target(text).repository == text


@pytest.mark.parametrize("text", ["", "ftp://host", "s3://", "rsync:"])
def test_other_targets_are_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert "dir:" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("rsync://team@host/wheels/", "rsync://team@host/wheels"),
        ("rsync:team@host:/srv/wheels", "team@host:/srv/wheels"),
    ],
)
def test_rsync_is_reached_by_daemon_or_ssh(text: str, place: str) -> None:
    assert parse_target(text).rsync == place


def test_a_bucket_is_a_target() -> None:
    assert parse_target("s3://bucket/team/wheels/").s3 == "bucket/team/wheels"


def test_a_target_never_shows_its_password() -> None:
    assert "secret" not in str(parse_target("https://me:secret@wheels.example/"))


def test_an_unknown_pypirc_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match="Missing 'team' section"):
        publish([make_wheel(tmp_path)], "team", settings=Settings(), console=CONSOLE)


@pytest.mark.parametrize("address", [DEFAULT_REPOSITORY, TEST_REPOSITORY])
def test_a_public_address_takes_no_local_version(address: str, tmp_path: Path) -> None:
    with pytest.raises(PublicIndexRefused, match=r"minitorch-0\.1\+rocm5\.7"):
        publish([make_wheel(tmp_path)], address, settings=Settings(), console=CONSOLE)


def test_wheels_come_after_what_they_require_whatever_the_order(tmp_path: Path) -> None:
    a = open_dist(make_wheel(tmp_path, name="a", requires=["b"]))
    b = open_dist(make_wheel(tmp_path, name="b", requires=["c >=0"]))
    c = open_dist(make_wheel(tmp_path, name="c"))
    assert [d.name for d in in_dependency_order([a, b, c])] == ["c", "b", "a"]
    assert [d.name for d in in_dependency_order([c, a, b])] == ["c", "b", "a"]


def test_a_cycle_of_requirements_has_an_order_all_the_same(tmp_path: Path) -> None:
    a = open_dist(make_wheel(tmp_path, name="a", requires=["b"]))
    b = open_dist(make_wheel(tmp_path, name="b", requires=["a"]))
    assert sorted(d.name for d in in_dependency_order([b, a])) == ["a", "b"]


def test_a_missing_companion_is_a_warning(tmp_path: Path) -> None:
    dist = open_dist(make_wheel(tmp_path, requires=["numpy", "extra-thing ; extra == 'test'"]))
    (warning,) = check_closure([dist], nothing_listed)
    assert "numpy" in warning and "extra-thing" not in warning


def test_a_name_that_the_public_index_has_too_is_a_warning(tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("Mini_Torch\nnumpy\n")
    wheels = [make_wheel(tmp_path, name="mini-torch"), make_wheel(tmp_path, name="private-base")]
    settings = Settings(public_names=str(names))
    report = publish(wheels, f"dir:{tmp_path / 'index'}", settings=settings, console=CONSOLE, dry_run=True)
    (warning,) = [text for text in report.warnings if "public index" in text]
    assert warning.startswith("mini-torch is")


def test_a_list_of_public_names_that_is_not_there_is_said(tmp_path: Path) -> None:
    settings = Settings(public_names=str(tmp_path / "none"))
    with pytest.raises(UsageError, match="list of public names"):
        publish([make_wheel(tmp_path)], f"dir:{tmp_path}", settings=settings, console=CONSOLE, dry_run=True)


def test_a_companion_of_a_version_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    app = open_dist(make_wheel(tmp_path, requires=["zcore ==2.0"]))
    core = open_dist(make_wheel(tmp_path, name="zcore", version="1.0+rocm5.7"))
    with pytest.raises(UnmetDependency, match=r"requires zcore==2\.0.*only have zcore 1\.0\+rocm5\.7"):
        check_closure([app, core], nothing_listed)


def test_a_companion_on_the_index_counts(tmp_path: Path) -> None:
    app = open_dist(make_wheel(tmp_path, requires=["zcore ==2.0"]))
    assert check_closure([app], lambda _: ("zcore-2.0+rocm5.7-py3-none-any.whl",)) == ()


@pytest.mark.parametrize("arguments", [[], ["twice", "twice"]])
def test_no_wheel_and_one_wheel_twice_are_refused(arguments: Sequence[str], tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    with pytest.raises(UsageError, match="no wheels|twice"):
        publish([wheel for _ in arguments], f"dir:{tmp_path / 'out'}", settings=Settings(), console=CONSOLE)


def test_a_truncated_wheel_is_not_published(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    wheel.write_bytes(wheel.read_bytes()[:-30])
    with pytest.raises(BrokenArchive):
        publish([wheel], f"dir:{tmp_path / 'out'}", settings=Settings(), console=CONSOLE)
    assert not (tmp_path / "out").exists()


def test_publishing_to_a_directory_twice_does_nothing_the_second_time(tmp_path: Path) -> None:
    wheel, target = make_wheel(tmp_path / "dist"), f"dir:{tmp_path / 'out'}"
    first = publish([wheel], target, settings=Settings(), console=CONSOLE)
    second = publish([wheel], target, settings=Settings(), console=CONSOLE)
    assert [w.outcome for w in (*first.wheels, *second.wheels)] == ["published", "present"]
    assert first.hashes() == {"minitorch==0.1+rocm5.7": [sha256(wheel)]}


def test_a_dry_run_makes_no_directory(tmp_path: Path) -> None:
    report = publish(
        [make_wheel(tmp_path)], f"dir:{tmp_path / 'out'}", settings=Settings(), console=CONSOLE, dry_run=True
    )
    assert report.wheels[0].outcome == "missing" and not (tmp_path / "out").exists()


def test_other_bytes_in_a_directory_are_refused(tmp_path: Path) -> None:
    target = f"dir:{tmp_path / 'out'}"
    publish([make_wheel(tmp_path / "one")], target, settings=Settings(), console=CONSOLE)
    other = make_wheel(tmp_path / "two", files={"minitorch/__init__.py": b"other = True\n"})
    with pytest.raises(NameTaken):
        publish([other], target, settings=Settings(), console=CONSOLE)


def test_of_two_publishers_with_other_bytes_one_wins_and_one_is_told(tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path / str(n), files={"minitorch/data": bytes([n]) * 2_000_000}) for n in range(2)]
    errors: list[NameTaken] = []

    def run(wheel: Path) -> None:
        try:
            publish([wheel], f"dir:{tmp_path / 'out'}", settings=Settings(), console=CONSOLE)
        except NameTaken as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(wheel,)) for wheel in wheels]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(errors) == 1
    assert sha256(tmp_path / "out" / wheels[0].name) in {sha256(w) for w in wheels}
    assert not list((tmp_path / "out").glob(".*.part"))


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rocm_wheels.publish.directory.os.fsync", full)
    wheel = make_wheel(tmp_path / "dist")
    with pytest.raises(NoSpace, match="no room for minitorch"):
        publish([wheel], f"dir:{tmp_path / 'out'}", settings=Settings(), console=CONSOLE)
    assert [p.name for p in (tmp_path / "out").iterdir() if "whl" in p.name] == []


def test_a_journal_line_cut_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    journal.note("stored", "a.whl", "00")
    with journal.path.open("a") as file:
        file.write('{"event": "read-ba')
    assert journal.events("a.whl", "00") == ("stored",)


def test_a_server_may_store_plus_as_underscore() -> None:
    assert file_key("a-1+rocm5.7-py3-none-any.whl") == file_key("a-1_rocm5.7-py3-none-any.whl")


def page(text: str, kind: str) -> requests.Response:
    response = requests.Response()
    response.status_code, response._content, response.url = 200, text.encode(), "http://index.example/simple/a/"
    response.headers["Content-Type"] = kind
    return response


def test_an_html_page_is_read_with_quoted_names_and_attributes() -> None:
    text = (
        f'<a href="../../f/a-1%2Brocm-py3-none-any.whl#sha256={"0" * 64}" data-requires-python="&gt;=3.8"'
        ' data-yanked="">x</a><a href="b-1-py3-none-any.whl#md5=00">y</a><a>z</a>'
    )
    first, second = parse_page(page(text, "text/html"))
    assert (first.filename, first.url) == (
        "a-1+rocm-py3-none-any.whl",
        "http://index.example/f/a-1%2Brocm-py3-none-any.whl",
    )
    assert (first.sha256, first.requires_python, first.yanked) == ("0" * 64, ">=3.8", True)
    assert (second.sha256, second.yanked) == (None, False)


def test_a_json_page_is_read() -> None:
    text = '{"files": [{"filename": "a.whl", "url": "../a.whl", "hashes": {"sha256": "00"}, "yanked": false}]}'
    (file,) = parse_page(page(text, "application/vnd.pypi.simple.v1+json"))
    assert (file.url, file.sha256, file.yanked) == ("http://index.example/simple/a.whl", "00", False)


def test_a_reason_never_holds_credentials() -> None:
    error = requests.ConnectionError("http://me:secret@host/")
    error.__cause__ = OSError(111, "refused by http://me:secret@host/")
    assert "secret" not in cause(error)


SUPPORTED = frozenset({Tag("cp313", "cp313", "manylinux_2_36_x86_64"), Tag("py3", "none", "any")})


@pytest.mark.parametrize(
    ("tag", "python", "reason"),
    [
        (Tag("cp313", "cp313", "manylinux_2_36_x86_64"), "", None),
        (Tag("cp314", "cp314", "manylinux_2_36_x86_64"), "", "built for cp314-cp314, this is Python 3.13.5"),
        (Tag("cp313", "cp313", "manylinux_2_41_x86_64"), "", "manylinux_2_41_x86_64 is newer than"),
        (Tag("py3", "none", "any"), ">=3.14", "Requires-Python >=3.14, this is Python 3.13.5"),
    ],
)
def test_the_reason_why_a_wheel_does_not_fit(tag: Tag, python: str, reason: str | None) -> None:
    found = explain_tags(frozenset({tag}), python, SUPPORTED, "3.13.5", "glibc 2.36")
    assert found == reason if reason is None else reason in str(found)


def test_a_requirements_file_allows_exactly_these_hashes() -> None:
    assert requirements_with_hashes({"b==1": ["22", "11"], "a==2": ["33"]}) == (
        "a==2 \\\n    --hash=sha256:33\nb==1 \\\n    --hash=sha256:11 \\\n    --hash=sha256:22\n"
    )


def test_a_requirement_that_is_none_is_a_broken_wheel(tmp_path: Path) -> None:
    with pytest.raises(BrokenWheel, match="Requires-Dist"):
        publish(
            [make_wheel(tmp_path, requires=["not a requirement!"])],
            f"dir:{tmp_path / 'out'}",
            settings=Settings(),
            console=CONSOLE,
        )


def test_a_target_that_cannot_be_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        publish([make_wheel(tmp_path)], f"dir:{tmp_path}/file/out", settings=Settings(), console=CONSOLE)


@pytest.mark.parametrize("text", ["{", "[]", '{"files": [{}]}', '{"files": 3}'])
def test_a_page_that_is_none_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = page(text, "application/vnd.pypi.simple.v1+json")
    session = requests.Session()
    monkeypatch.setattr(session, "get", lambda *_, **__: answer)
    with pytest.raises(UploadRefused, match="is no page of an index"):
        Index("http://index.example/simple/", session).files(canonicalize_name("a"))
