"""Single steps as tasks: `invoke -l`, `invoke --help TASK`. Builds and tests are nox sessions: `nox -l`.

The tasks are in rocm_wheels/cli, a module per stage.
"""

from rocm_wheels.cli import collection

namespace = collection()
