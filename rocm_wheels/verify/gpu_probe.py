"""Run by the interpreter that has the wheel: three computations on a device against the CPU.

Prints a JSON list of ``[check, what, evidence]``, empty when all agree. Needs nothing but torch; the first argument is
the device (``cuda`` is what PyTorch calls a ROCm GPU).
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(device: str) -> list[tuple[str, str, str]]:
    """The findings on ``device``."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    found = _arch(torch) if device == "cuda" else []
    torch.manual_seed(0)
    for name, compute, inputs, tolerance in _cases(torch):
        wanted = compute(*(i.double() for i in inputs))
        given = compute(*(i.to(device) for i in inputs)).cpu().double()
        worst = float((given - wanted).abs().max() / wanted.abs().max())
        if not worst <= tolerance:  # a NaN is no agreement
            found.append(("gpu-compute", name, f"differs from the CPU by {worst:.3g}, {tolerance:g} is allowed"))
    return found


def _arch(torch: Any) -> list[tuple[str, str, str]]:
    own = torch.cuda.get_device_properties(0).gcnArchName.partition(":")[0]
    built = {arch.partition(":")[0] for arch in torch.cuda.get_arch_list()}
    return [] if own in built else [("gpu-arch", own, f"the package has code for {', '.join(sorted(built)) or 'none'}")]


def _cases(torch: Any) -> list[tuple[str, Any, list[Any], float]]:
    """Name, function, float32 inputs and the largest difference relative to the largest result."""
    return [
        ("element-wise", lambda x: torch.exp(torch.sin(x)) * x, [torch.randn(1 << 20)], 1e-5),
        ("matrix product", torch.matmul, [torch.randn(512, 768), torch.randn(768, 384)], 1e-4),
        ("convolution", torch.nn.functional.conv2d, [torch.randn(4, 16, 48, 48), torch.randn(32, 16, 3, 3)], 1e-4),
    ]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
