"""A pinned source, verified and patched: git, archives, Debian source packages, directories."""

from rocm_wheels.source.checkout import apply_series, plan_checkout, prepare
from rocm_wheels.source.model import Checkout, CheckoutPlan, Patch, PatchStatus
from rocm_wheels.source.patches import classify

__all__ = ["Checkout", "CheckoutPlan", "Patch", "PatchStatus", "apply_series", "classify", "plan_checkout", "prepare"]
