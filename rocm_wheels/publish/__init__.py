"""Hand wheels out: upload, static index, and what the colleague needs to install from them."""

from rocm_wheels.publish.index import update_index, yank
from rocm_wheels.publish.install import InstallResult, install_back, why_not_installable
from rocm_wheels.publish.run import PublishReport, publish

__all__ = ["InstallResult", "PublishReport", "install_back", "publish", "update_index", "why_not_installable", "yank"]
