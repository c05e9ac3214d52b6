"""What went wrong in a log: the first real error, and the known fault that it is a sign of."""

from rocm_wheels.diagnose.catalogue import Fault, load_catalogue
from rocm_wheels.diagnose.engine import Diagnosis, Finding, diagnose_log, diagnose_text, find_logs, first_error

__all__ = [
    "Diagnosis",
    "Fault",
    "Finding",
    "diagnose_log",
    "diagnose_text",
    "find_logs",
    "first_error",
    "load_catalogue",
]
