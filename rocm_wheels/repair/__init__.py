"""Makes a wheel portable: needs resolved, ROCm grafted or left outside, RPATHs set, the platform tag measured."""

from rocm_wheels.repair.apply import apply_plan
from rocm_wheels.repair.model import MODES, RepairOptions, RepairPlan
from rocm_wheels.repair.plan import check_results, plan_repair

__all__ = ["MODES", "RepairOptions", "RepairPlan", "apply_plan", "check_results", "plan_repair"]
