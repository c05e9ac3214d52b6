#!/bin/sh
# install.sh for dnf: install the packages named in the LISTS beside this script.
#
#   install-rpm.sh LIST...
set -eu
packages=$(cd "$(dirname "$0")" && sed 's/#.*//' "$@")
# shellcheck disable=SC2086
dnf install -y -q --setopt=install_weak_deps=False $packages
dnf clean all
rm -rf /var/cache/dnf /var/log/dnf*
