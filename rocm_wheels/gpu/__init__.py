"""GPUs: targets and lists of them, products, what runs on what, and the ones in this machine.

`targets` knows the names that LLVM has, `cards` the products behind them and whether code for one target runs on
another, `detect` what this machine has.
"""

from rocm_wheels.gpu.targets import GENERIC_TARGETS, KNOWN_TARGETS, check_arch, parse_archs

__all__ = ["GENERIC_TARGETS", "KNOWN_TARGETS", "check_arch", "parse_archs"]
