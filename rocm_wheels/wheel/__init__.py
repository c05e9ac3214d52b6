"""Wheels: archive, RECORD, metadata and measured tags. Reading is apart from writing."""

from rocm_wheels.wheel.archive import Member, WheelArchive
from rocm_wheels.wheel.writer import WheelWriter

__all__ = ["Member", "WheelArchive", "WheelWriter"]
