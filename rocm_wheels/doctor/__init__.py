"""Finds out now what would make a later step fail."""

from rocm_wheels.doctor.model import Result, State
from rocm_wheels.doctor.run import CHECKS, examine, mend

__all__ = ["CHECKS", "Result", "State", "examine", "mend"]
