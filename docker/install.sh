#!/bin/sh
# Install the packages named in LISTS beside this script (one a line, `#` starts a comment); leave no index and no log.
#
#   install.sh [--stale-ok] LIST...
#
# `--stale-ok` takes a Release file past its Valid-Until date, which a lagging mirror has for the moving suites. Only
# for those: elsewhere it would let somebody hand out last year's packages.
set -eu
options=
if [ "$1" = --stale-ok ]; then
  options="-o Acquire::Check-Valid-Until=false"
  echo "note: the suite's Release file may be past its Valid-Until"
  shift
fi
packages=$(cd "$(dirname "$0")" && sed 's/#.*//' "$@")
# The image is thrown away when a step fails: no file needs to reach the disk before the next is written.
echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/unsafe-io
# shellcheck disable=SC2086
apt-get $options update -qq
# shellcheck disable=SC2086
apt-get $options install -qq -y --no-install-recommends $packages > /dev/null
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/ldconfig/* /var/log/apt /var/log/dpkg.log
