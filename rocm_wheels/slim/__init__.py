"""The wheel for some GPUs, from anybody's wheel for many, without compiling."""

from rocm_wheels.slim.apply import MANIFEST, slim
from rocm_wheels.slim.model import SlimPlan

__all__ = ["MANIFEST", "SlimPlan", "slim"]
