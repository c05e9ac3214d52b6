"""Running what was built: an environment for one wheel on one GPU, and where its time goes."""

from rocm_wheels.tune.activation import activation_file, load_variables
from rocm_wheels.tune.profile import Kernel, Profile, find_profiler, html, read_profile, run_profiler

__all__ = [
    "Kernel",
    "Profile",
    "activation_file",
    "find_profiler",
    "html",
    "load_variables",
    "read_profile",
    "run_profiler",
]
