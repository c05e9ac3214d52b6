#!/bin/sh
# Add CMake, ninja and ccache to /opt/tools (pythons.sh) where the distribution's are too old.
# Reads /run/secrets/ca_bundle (optional), as pythons.sh does.
set -eu
if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi
/opt/tools/bin/pip install -q --no-cache-dir --require-hashes --only-binary :all: \
  -r "$(dirname "$0")/toolchain-requirements.txt"
/opt/tools/bin/ccache --version
