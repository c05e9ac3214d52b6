"""Every way this tool can fail, one class per cause, each with an exit code of its own.

Codes by room: 10 config and command line, 15 diagnose, doctor and tune, 20 release, 30 source, 40 engine and image,
50 build, 60 wheel and ELF, 70 repair, 80 verify, 90 publish, 100 layers. 1 and 2 stay with Python, nox
and invoke; 130 and 143 are the signals.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import ClassVar


class RocmWheelsError(Exception):
    """A failure that the user can act on.

    ``message`` says what was found and where and why it is wrong; ``remedy`` is the command or setting that mends
    it. Raise a subclass: its ``exit_code`` is what the process ends with.
    """

    exit_code: ClassVar[int] = 10

    def __init__(self, message: str, *, remedy: str = "") -> None:
        self.message = printable(redact(message))
        self.remedy = printable(redact(remedy))
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.remedy}" if self.remedy else self.message

    def as_dict(self) -> dict[str, str | int]:
        """The error as ``--json`` prints it: ``error`` (class), ``message``, ``remedy``, ``exit_code``."""
        return {
            "error": type(self).__name__,
            "message": self.message,
            "remedy": self.remedy,
            "exit_code": self.exit_code,
        }


_SECRETS = (
    # user:password@, token@; an ssh user alone is no secret
    re.compile(r"(?<=://)(?:(?<=http://)|(?<=https://)|(?=[^/\s@]*:))[^/\s\"]+(?=@)"),
    re.compile(r"(?i)(?<=[?&])([^=&\s]*(?:token|key|secret|sig|passw|auth)[^=&\s]*=)[^&\s'\"]+"),
)


def redact(text: str) -> str:
    """``text`` without the credentials of the addresses in it; everything that is printed goes through here."""
    return _SECRETS[1].sub(r"\1***", _SECRETS[0].sub("***", text))


def printable(text: str) -> str:
    """``text`` with what is no character, or would steer a terminal, written out; line ends and tabs stay.

    Names in files of others (paths, needed libraries, members) may hold anything.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)


def nearest(word: str, known: Iterable[str], *, count: int = 3) -> str:
    """The known names closest to ``word``, as `` (did you mean …?)`` or all of them when none is close."""
    names = sorted(set(known))
    close = difflib.get_close_matches(word, names, n=count, cutoff=0.5)
    if close:
        return f"did you mean {', '.join(close)}?"
    return f"known: {', '.join(names)}" if names else "none is known"


# --- 10: config and command line ------------------------------------------------------------------------------------


class UsageError(RocmWheelsError):
    """An option or argument that makes no sense."""

    exit_code = 11


class SettingError(RocmWheelsError):
    """An unknown setting or a value of the wrong form, with the place it came from."""

    exit_code = 12


class TreeLocked(RocmWheelsError):
    """Another live run holds the tree and waiting for it was not wanted or took too long."""

    exit_code = 13


class NoSpace(RocmWheelsError):
    """A file system has less free space than the step needs, or ran full during it."""

    exit_code = 14


# --- 15: diagnose, doctor and tune ----------------------------------------------------------------------------------


class LogUnreadable(RocmWheelsError):
    """A log that should be diagnosed cannot be read."""

    exit_code = 15


class CatalogueError(RocmWheelsError):
    """An entry of the catalogue of faults is malformed."""

    exit_code = 16


class DoctorFailed(RocmWheelsError):
    """Doctor found something that would make a later step fail."""

    exit_code = 17


class ProfilerMissing(RocmWheelsError):
    """Neither rocprofv3 nor rocprof is installed."""

    exit_code = 18


class ProfilerFailed(RocmWheelsError):
    """The profiler ended with an error, or left nothing that can be read."""

    exit_code = 19


# --- 20: release ----------------------------------------------------------------------------------------------------


class MatrixError(RocmWheelsError):
    """A row of the release data is malformed or contradicts another."""

    exit_code = 20


class UnknownRelease(RocmWheelsError):
    """No row for this framework and version."""

    exit_code = 21


class Impossible(RocmWheelsError):
    """Release, ROCm, Python, GPU target and image do not go together."""

    exit_code = 22


class UnknownArch(RocmWheelsError):
    """Not a GPU target, or none was given."""

    exit_code = 23


class UnknownImage(RocmWheelsError):
    """No builder image has this name."""

    exit_code = 24


class IndexSilent(RocmWheelsError):
    """pip could not read the metadata of a wheel on the package index."""

    exit_code = 25


class UnknownFact(RocmWheelsError):
    """The release data says that nobody could read this, and the step depends on it."""

    exit_code = 26


class DataDrifted(RocmWheelsError):
    """The release data says something else than the wheels on the package index."""

    exit_code = 27


# --- 30: source -----------------------------------------------------------------------------------------------------


class PinMismatch(RocmWheelsError):
    """What was fetched is not what the release data pins."""

    exit_code = 30


class SourceUnreachable(RocmWheelsError):
    """No address that holds the source answers."""

    exit_code = 31


class PatchFailed(RocmWheelsError):
    """A patch of the series does not apply to this source."""

    exit_code = 32


class PatchTargetMissing(RocmWheelsError):
    """A patch is for a file that the source does not have, such as one of a missing submodule."""

    exit_code = 33


class SubmoduleBroken(RocmWheelsError):
    """A submodule is missing or cannot be had at the commit that the source records."""

    exit_code = 34


class SourceToolMissing(RocmWheelsError):
    """git or apt is needed to fetch the source and is not installed."""

    exit_code = 35


class ForeignTree(RocmWheelsError):
    """A directory is in the way that this tool did not lay, or lacks the record of a tree that it did."""

    exit_code = 36


class LockDiffers(RocmWheelsError):
    """A lock says something else than what its source has now."""

    exit_code = 37


# --- 40: engine and image -------------------------------------------------------------------------------------------


class NoEngine(RocmWheelsError):
    """Neither docker nor podman is installed, or not the one that was asked for."""

    exit_code = 40


class EnginePermission(RocmWheelsError):
    """The engine is there, but this user may not use it (socket, subordinate ids)."""

    exit_code = 41


class EngineTooOld(RocmWheelsError):
    """The engine is older than the options that the build needs."""

    exit_code = 42


class EngineBroken(RocmWheelsError):
    """The engine is there, but starts no container here whatever is asked of it."""

    exit_code = 43


class ContainerStartFailed(RocmWheelsError):
    """The engine could not start the container; the command inside never ran."""

    exit_code = 44


class DeviceMissing(RocmWheelsError):
    """A device that a container should get does not exist on this machine."""

    exit_code = 45


class ImageBuildFailed(RocmWheelsError):
    """A step of a Dockerfile failed; the message shows the first real error of the log."""

    exit_code = 46


class BaseUnavailable(RocmWheelsError):
    """The base image can neither be pulled from a registry nor made from an apt mirror."""

    exit_code = 47


class PackagesMissing(RocmWheelsError):
    """Debian packages are missing and this user or system cannot install them by itself."""

    exit_code = 48


class HostToolMissing(RocmWheelsError):
    """``--engine none`` was asked for and the machine lacks a tool of the build."""

    exit_code = 49


# --- 50: build ------------------------------------------------------------------------------------------------------


class StageFailed(RocmWheelsError):
    """A command of a build stage ended with an error; the message shows the first real error of its log."""

    exit_code = 50


class ConfigureRejected(RocmWheelsError):
    """CMake configured something else than what was asked for: ROCm off, other archs, options ignored."""

    exit_code = 51


class CompileRejected(RocmWheelsError):
    """The compiled tree or wheel is not the ROCm build that was asked for."""

    exit_code = 52


class CanaryRejected(RocmWheelsError):
    """The canary library did not survive repair or verify; the long compile was not started."""

    exit_code = 53


class CompilerKilled(RocmWheelsError):
    """A compiler was killed, in all likelihood for memory."""

    exit_code = 54


class ToolchainChanged(RocmWheelsError):
    """The image has other compilers than the unfinished tree was begun with."""

    exit_code = 55


class PreflightFailed(RocmWheelsError):
    """The image's compiler does not compile a small kernel for the targets of the build."""

    exit_code = 56


# --- 60: wheel and ELF ----------------------------------------------------------------------------------------------


class NotElf(RocmWheelsError):
    """Not a 64-bit little-endian ELF file."""

    exit_code = 60


class BrokenElf(RocmWheelsError):
    """An ELF file whose tables point outside of it or contradict each other."""

    exit_code = 61


class BrokenBundle(RocmWheelsError):
    """Device code that cannot be read: a damaged offload bundle."""

    exit_code = 62


class EditFailed(RocmWheelsError):
    """patchelf failed, is not a trusted version, or left a library that a loader would refuse."""

    exit_code = 63


class BrokenArchive(RocmWheelsError):
    """A zip archive that is damaged, unsafe to unpack, or read differently by different tools."""

    exit_code = 64


class BrokenWheel(RocmWheelsError):
    """A sound archive that is no valid wheel: name, METADATA, WHEEL or RECORD are wrong."""

    exit_code = 65


# --- 70: repair -----------------------------------------------------------------------------------------------------


class LibraryMissing(RocmWheelsError):
    """A library that the wheel needs is neither in it nor on this machine."""

    exit_code = 70


class PlatformImpossible(RocmWheelsError):
    """The platform tag that was asked for promises less than the files need."""

    exit_code = 71


class NothingToRepair(RocmWheelsError):
    """The wheel holds no compiled code."""

    exit_code = 72


class UnusedExclude(RocmWheelsError):
    """An exclude that no needed library matches: a wrong name, or one that changed with the ROCm release."""

    exit_code = 73


class DataMissing(RocmWheelsError):
    """Data that a grafted library reads at run time is not on this machine, or is empty."""

    exit_code = 74


class SameResult(RocmWheelsError):
    """Two of the wheels that were named would become the same file."""

    exit_code = 75


# --- 80: verify -----------------------------------------------------------------------------------------------------


class WheelRejected(RocmWheelsError):
    """Verify found errors in a wheel."""

    exit_code = 80


class UnknownCheck(RocmWheelsError):
    """No check has this id."""

    exit_code = 81


# --- 90: publish ----------------------------------------------------------------------------------------------------


class PublicIndexRefused(RocmWheelsError):
    """A version with a local label was about to go to a public index, which takes none."""

    exit_code = 90


class NameTaken(RocmWheelsError):
    """The index holds other bytes under the same file name."""

    exit_code = 91


class CredentialsRefused(RocmWheelsError):
    """The index wants credentials, or does not accept the ones that were found."""

    exit_code = 92


class UploadTooLarge(RocmWheelsError):
    """A proxy or server takes no file of this size."""

    exit_code = 93


class ServerFull(RocmWheelsError):
    """The server has no room left for the file."""

    exit_code = 94


class ServerUnreachable(RocmWheelsError):
    """No connection to the index, or every attempt lost it."""

    exit_code = 95


class UploadRefused(RocmWheelsError):
    """The server refused the upload for a reason that only it knows; its answer is in the message."""

    exit_code = 96


class ReadBackMismatch(RocmWheelsError):
    """The index does not hand out the bytes that were published."""

    exit_code = 97


class InstallFailed(RocmWheelsError):
    """pip or uv could not install from the index, or installed something else."""

    exit_code = 98


class UnmetDependency(RocmWheelsError):
    """A wheel asks for something that neither the published set nor the index can give it."""

    exit_code = 99


# --- 100: layers, signatures and slim ---------------------------------------------------------------------------------


class NoRocm(RocmWheelsError):
    """A wheel to split into layers that has no ROCm libraries which could be shared."""

    exit_code = 100


class LayersDiffer(RocmWheelsError):
    """Wheels that shall share one base carry different files for the same place."""

    exit_code = 101


class BaseMismatch(RocmWheelsError):
    """The base wheels given are not one set, or lack what a framework needs."""

    exit_code = 102


class AttestationInvalid(RocmWheelsError):
    """A wheel without attestation, with one that the given key has not signed, or with one for other bytes."""

    exit_code = 103


class ArchMissing(RocmWheelsError):
    """A GPU is asked for that some library of the wheel has no code, or no data, for."""

    exit_code = 105


class NothingToSlim(RocmWheelsError):
    """The wheel has no GPU code that could be left out."""

    exit_code = 106
