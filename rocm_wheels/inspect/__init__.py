"""What is in a ROCm wheel: bytes, device code per target, data, needs, platform, and the cards that it runs on."""

from rocm_wheels.inspect.answer import answer
from rocm_wheels.inspect.model import Answer, Inspection
from rocm_wheels.inspect.run import inspect_wheel

__all__ = ["Answer", "Inspection", "answer", "inspect_wheel"]
