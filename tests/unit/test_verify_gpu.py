"""The probe that runs kernels, beside a stand-in for PyTorch: there is no AMD GPU here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocm_wheels.verify.install import gpu_findings

Said = Callable[..., list[tuple[str, str]]]

# Numbers instead of tensors; what the "GPU" computes is off by FACTOR.
TORCH = """
import math
class T(float):
    def double(self): return self
    def to(self, device): return G(self)
    def cpu(self): return self
    def abs(self): return T(abs(float(self)))
    def max(self): return self
    def __sub__(self, other): return T(float(self) - float(other))
    def __truediv__(self, other): return T(float(self) / float(other))
    def __mul__(self, other): return T(float(self) * float(other))
class G(T):
    def __mul__(self, other): return G(float(self) * float(other) * FACTOR)
    def cpu(self): return T(self)
FACTOR = {factor}
def manual_seed(n): pass
def randn(*shape): return T(0.5)
def sin(x): return type(x)(math.sin(x))
def exp(x): return type(x)(math.exp(x))
def matmul(a, b): return a * b
class nn:
    class functional:
        @staticmethod
        def conv2d(a, b): return a * b
class cuda:
    @staticmethod
    def get_device_properties(n):
        class P: gcnArchName = "gfx1030:sramecc-"
        return P
    @staticmethod
    def get_arch_list(): return {archs!r}
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Said:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def say(factor: str = "1.0", archs: tuple[str, ...] = ("gfx1030",)) -> list[tuple[str, str]]:
        (tmp_path / "torch.py").write_text(TORCH.replace("{factor}", factor).replace("{archs!r}", repr(list(archs))))
        return [(f.check.id, f.member) for f in gpu_findings(sys.executable, "cuda")]

    return say


def test_gpu_that_agrees_with_the_cpu(said: Said) -> None:
    assert said() == []


@pytest.mark.parametrize("factor", ["1.01", "float('nan')"])
def test_each_computation_that_differs_is_named(said: Said, factor: str) -> None:
    kinds = ("element-wise", "matrix product", "convolution")
    assert said(factor) == [("gpu-compute", kind) for kind in kinds]


def test_difference_of_rounding_is_allowed(said: Said) -> None:
    assert said("1.000001") == []


def test_gpu_that_the_package_was_not_built_for(said: Said) -> None:
    assert said(archs=("gfx1100", "gfx906")) == [("gpu-arch", "gfx1030")]


def test_probe_that_crashes_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('HSA_STATUS_ERROR')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (found,) = gpu_findings(sys.executable, "cuda")
    assert found.check.id == "gpu-compute"
    assert "HSA_STATUS_ERROR" in found.evidence
