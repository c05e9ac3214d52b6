from __future__ import annotations

from rocm_wheels import errors
from rocm_wheels.errors import RocmWheelsError, nearest


def all_errors(base: type[RocmWheelsError] = RocmWheelsError) -> list[type[RocmWheelsError]]:
    return [base, *(e for sub in base.__subclasses__() for e in all_errors(sub))]


def test_every_cause_has_an_exit_code_of_its_own() -> None:
    codes = [e.exit_code for e in all_errors()]
    assert len(set(codes)) == len(codes)
    assert all(10 <= code < 110 for code in codes)


def test_every_error_is_defined_in_errors_and_says_its_cause() -> None:
    assert all(e.__module__ == errors.__name__ and e.__doc__ for e in all_errors())


def test_remedy_stands_below_the_message() -> None:
    assert str(errors.UsageError("no", remedy="do this")) == "no\n  → do this"
    assert str(errors.UsageError("no")) == "no"


def test_nearest_names_close_words_or_all() -> None:
    assert nearest("gfx1031", ["gfx1030", "gfx90a"]).startswith("did you mean gfx1030")
    assert nearest("zzz", ["a", "b"]) == "known: a, b"
    assert nearest("zzz", []) == "none is known"
