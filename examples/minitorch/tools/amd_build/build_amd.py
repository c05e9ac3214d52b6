"""Write csrc/hip from csrc/cuda: the same sources with HIP's names in the place of CUDA's.

A file is left alone if it was made from the same source before, so that a second run changes nothing, not even a file
that was patched in between.
"""

import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Names that do not follow the general rule below.
NAMES = {
    "cuda_runtime.h": "hip/hip_runtime.h",
    "cublas_v2.h": "rocblas/rocblas.h",
    "cublasHandle_t": "rocblas_handle",
    "cublasStatus_t": "rocblas_status",
    "cublasCreate": "rocblas_create_handle",
    "cublasDestroy": "rocblas_destroy_handle",
    "cublasSgemm": "rocblas_sgemm",
    "CUBLAS_STATUS_SUCCESS": "rocblas_status_success",
    "CUBLAS_OP_N": "rocblas_operation_none",
    "libnvToolsExt.so": "libroctx64.so",
}
_NAME = re.compile(r"\b(?:" + "|".join(re.escape(name) for name in sorted(NAMES, key=len, reverse=True)) + r")(?!\w)")
_RULES = ((re.compile(r"\bcuda(?=[A-Z])"), "hip"), (re.compile(r"_cuda(?=_|\b)"), "_hip"), (re.compile("CUDA"), "HIP"))
_STAMP = "// Made by tools/amd_build/build_amd.py from {name}, sha256 {digest}\n"


def hipify(text: str) -> str:
    """``text`` with every CUDA name replaced; raises ValueError when a cuBLAS name has no translation."""
    text = _NAME.sub(lambda found: NAMES[found[0]], text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    if left := re.search(r"\bcublas\w*|\bCUBLAS\w*", text):
        raise ValueError(f"{left[0]} has no translation in build_amd.py")
    return text


def translate(source: Path, target: Path) -> bool:
    """Write ``target`` from ``source``; False if it was made from the same bytes before."""
    data = source.read_bytes()
    stamp = _STAMP.format(name=source.relative_to(ROOT).as_posix(), digest=hashlib.sha256(data).hexdigest())
    if target.is_file() and target.read_text("utf-8").startswith(stamp):
        return False
    target.parent.mkdir(exist_ok=True)
    beside = target.with_name(f".{target.name}.new")
    beside.write_text(stamp + hipify(data.decode("utf-8")), "utf-8")
    beside.replace(target)
    return True


def main() -> int:
    """Translate all of csrc/cuda."""
    for source in sorted((ROOT / "csrc" / "cuda").iterdir()):
        name = source.name.replace("CUDA", "HIP")
        target = ROOT / "csrc" / "hip" / re.sub(r"\.cu$", ".hip", name)
        try:
            word = "wrote" if translate(source, target) else "kept"
        except ValueError as error:
            print(f"{source.relative_to(ROOT)}: error: {error}", file=sys.stderr)
            return 1
        print(f"{word} {target.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
