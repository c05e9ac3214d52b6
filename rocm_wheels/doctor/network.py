"""Registry, mirrors, sources and index: reachable from here, trusted, and agreed on the time."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests

from rocm_wheels.config import PROJECT_ROOT, Settings
from rocm_wheels.doctor.model import Result, State
from rocm_wheels.errors import RocmWheelsError
from rocm_wheels.publish.target import parse_target, repository_url
from rocm_wheels.release import Source, load_matrix
from rocm_wheels.source.address import rewrite
from rocm_wheels.source.debian import machine_mirror

_SECONDS = 4
_SKEW = 300  # signatures of apt repositories and TLS certificates fail from minutes on


@dataclass(frozen=True)
class Answer:
    """What an address said: ``problem`` is "" when it answered at all; ``skew`` its clock minus ours in seconds."""

    address: str
    problem: str = ""
    remedy: str = ""
    skew: float | None = None


def ask(address: str, settings: Settings) -> Answer:
    """HEAD ``address``; any status below 500 counts as an answer."""
    try:
        began = time.time()
        reply = requests.head(address, timeout=_SECONDS, verify=settings.ca_bundle or True)
    except requests.exceptions.SSLError as error:
        remedy = "set ca_bundle (ROCM_WHEELS_CA_BUNDLE) to the authority's PEM file"
        return Answer(address, f"its certificate is not trusted: {_reason(error)}", remedy)
    except OSError as error:  # requests' own errors among them
        return Answer(address, _reason(error), "look at DNS, firewall and https_proxy")
    if reply.status_code >= 500:  # a proxy's word for "not reachable" as well
        return Answer(address, f"answers {reply.status_code} {reply.reason}", "look at the server, or at https_proxy")
    sent = email.utils.parsedate_to_datetime(reply.headers["Date"]).timestamp() if "Date" in reply.headers else None
    return Answer(address, skew=None if sent is None else sent - (began + time.time()) / 2)


def _reason(error: OSError) -> str:
    """The innermost cause, without the wrapping of two libraries."""
    cause: BaseException = error
    while inner := (cause.__cause__ or cause.__context__):
        cause = inner
    return str(cause).rpartition("] ")[2][:160] or type(cause).__name__


def check_network(settings: Settings) -> Iterator[Result]:
    """The base image's registry or a mirror for it, the source of the release, and the index."""
    asked = _addresses(settings)
    with ThreadPoolExecutor(len(asked) or 1) as pool:
        answers = dict(zip(asked, pool.map(lambda name: ask(asked[name], settings), asked), strict=True))
    base = [answers[name] for name in ("registry", "mirror") if name in answers]
    if base and all(answer.problem for answer in base):
        found = "no base image can be had: " + "; ".join(f"{a.address}: {a.problem}" for a in base)
        yield Result("network", State.FAILED, found, base[-1].remedy)
    for name, answer in answers.items():
        if name in ("registry", "mirror"):
            if not all(a.problem for a in base):
                state = State.WARNING if answer.problem else State.OK
                yield Result("network", state, f"{name} {answer.address}{_colon(answer)}", answer.remedy)
        else:
            state = State.FAILED if answer.problem else State.OK
            yield Result("network", state, f"{name} {answer.address}{_colon(answer)}", answer.remedy)


def _colon(answer: Answer) -> str:
    return f": {answer.problem}" if answer.problem else " answers"


def _addresses(settings: Settings) -> dict[str, str]:
    """What the run will want to reach, by what it is for."""
    found: dict[str, str] = {}
    matrix = load_matrix()
    image = matrix.image(settings.image)
    if settings.engine != "none":
        found["registry"] = f"https://{image.base.partition('/')[0]}/"
        mirror = _mirror(settings)
        if image.suite and mirror:
            found["mirror"] = mirror
    if source := _source(matrix.release(settings.release).on(image).source, settings):
        found["source"] = source
    if settings.index and not settings.index.startswith("dir:"):
        found["index"] = repository_url(parse_target(settings.index))
    return found


def _mirror(settings: Settings) -> str:
    try:
        return settings.base_mirror or machine_mirror()
    except (RocmWheelsError, OSError):
        return ""


def _source(source: Source, settings: Settings) -> str:
    """The address that the source would be fetched from; "" for one that lies here."""
    if settings.source_mirror:
        return settings.source_mirror if "://" in settings.source_mirror else ""
    if source.kind == "git":
        address = rewrite(source.url, settings.git_mirrors)
    elif source.kind == "archive":
        address = source.archives[0].urls[0]
    else:
        address = _mirror(settings) if source.kind == "debian" else ""
    return address if urlsplit(address).scheme in ("http", "https") else ""


def check_clock(settings: Settings) -> Iterator[Result]:
    """This machine's time against servers' and against its own files."""
    newest = max(path.stat().st_mtime for path in (PROJECT_ROOT / "rocm_wheels").glob("*.py"))
    if newest > time.time() + 60:
        found = f"files of {PROJECT_ROOT} are {newest - time.time():.0f} s younger than now: the clock was set back"
        yield Result("clock", State.FAILED, found, "timedatectl set-ntp true")
        return
    addresses = [a for name, a in _addresses(settings).items() if name != "registry"]
    with ThreadPoolExecutor(len(addresses) or 1) as pool:
        answers = list(pool.map(lambda address: ask(address, settings), addresses))
    skews = [(answer.skew, answer.address) for answer in answers if answer.skew is not None]
    if not skews:
        yield Result("clock", State.UNKNOWN, "no server to compare the time with")
        return
    skew, address = max(skews, key=lambda pair: abs(pair[0]))
    state = State.OK if abs(skew) < _SKEW else State.FAILED
    found = f"{abs(skew):.0f} s from {address}"
    yield Result("clock", state, found, "" if state is State.OK else "timedatectl set-ntp true")
