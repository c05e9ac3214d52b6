#!/bin/sh
# Make /opt/tools (this project's tools) and a virtual environment /opt/python/VERSION per CPython, and record in
# /opt/rocm-wheels what is installed.
#
#   pythons.sh TOOLS-VERSION VERSION...
#
# The CPython is the one in /opt/cpython/VERSION if there is one (unpack-python.sh), else the distribution's. A virtual
# environment gives every one the same place for packages, whatever layout its base was built with.
# Reads /run/secrets/ca_bundle (optional): CA certificates for pip on networks that intercept TLS.
set -eu
if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi
export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_PROGRESS_BAR=off
lists=/opt/rocm-wheels

python_of() {
  if [ -x "/opt/cpython/$1/bin/python$1" ]; then echo "/opt/cpython/$1/bin/python$1"; else command -v "python$1"; fi
}

"$(python_of "$1")" -m venv /opt/tools
/opt/tools/bin/pip install -q --require-hashes --only-binary :all: -r "$lists/tools-requirements.txt"
shift
for version in "$@"; do
  "$(python_of "$version")" -m venv --without-pip "/opt/python/$version"
  /opt/tools/bin/pip --python "/opt/python/$version/bin/python" install -q --require-hashes --only-binary :all: \
    -r "$lists/build-requirements.txt"
  "/opt/python/$version/bin/python" -c 'import ctypes, lzma, numpy, sqlite3, ssl, yaml, zlib'
done

cat /opt/cpython/*/packages.tsv > "$lists/cpython.tsv" 2> /dev/null || : # every CPython may be the distribution's
if command -v dpkg-query > /dev/null; then
  dpkg-query -W -f '${Package}\t${Version}\t${Architecture}\n' > "$lists/packages.tsv"
else
  rpm -qa --qf '%{NAME}\t%{VERSION}-%{RELEASE}\t%{ARCH}\n' | sort > "$lists/packages.tsv"
fi
hipcc --version > /dev/null
