"""The judge of any ROCm wheel: archive, ELF, closure, coverage, identity, platform, install, cold loads, sets."""

from rocm_wheels.verify.catalogue import catalogue, explain
from rocm_wheels.verify.model import PROFILES, Report, Severity, VerifyOptions
from rocm_wheels.verify.run import verify

__all__ = ["PROFILES", "Report", "Severity", "VerifyOptions", "catalogue", "explain", "verify"]
