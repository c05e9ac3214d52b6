"""The judge of any ROCm wheel: archive, ELF, closure, coverage, platform, install, cold loads."""

from rocm_wheels.verify.catalogue import CATALOGUE, explain
from rocm_wheels.verify.model import PROFILES, Report, Severity, VerifyOptions
from rocm_wheels.verify.run import verify

__all__ = ["CATALOGUE", "PROFILES", "Report", "Severity", "VerifyOptions", "explain", "verify"]
