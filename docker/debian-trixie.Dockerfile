# Builder image: ROCm 5.7 from Debian's archive, its toolchain, and CPython 3.11, 3.13 and 3.14.
# No /dev/kfd, no root at run time, no address of a mirror or an index: apt uses what the base image came with.
# Secret `ca_bundle` (optional): CA certificates for pip on networks that intercept TLS; never stored in a layer.

FROM docker.io/library/debian:trixie AS base
ENV DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
# What any CPython here loads at run time.
RUN echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/unsafe-io && \
    apt-get update -qq && \
    apt-get install -qq -y --no-install-recommends \
      ca-certificates libbz2-1.0 libexpat1 libffi8 liblzma5 libncursesw6 libreadline8t64 libsqlite3-0 libssl3t64 \
      libuuid1 libzstd1 zlib1g > /dev/null && \
    apt-get clean && rm -rf /var/lib/apt/lists/*

# --- the two CPythons that trixie does not have, from the suites that do ----------------------------------------------

FROM base AS cpython
COPY unpack-python.sh /usr/local/src/
RUN sh /usr/local/src/unpack-python.sh 3.11 bookworm 3.11.2-6+deb12u6 && \
    sh /usr/local/src/unpack-python.sh 3.14 forky 3.14.8-1 stale-ok

# --- ROCm, compilers, the system libraries of the frameworks ----------------------------------------------------------

FROM base AS rocm
RUN apt-get update -qq && \
    apt-get install -qq -y --no-install-recommends \
      # ROCm
      hipcc libamd-comgr-dev libamdhip64-dev libhipblas-dev libhipcub-dev libhipfft-dev libhiprand-dev \
      libhiprtc-builtins5 libhipsolver-dev libhipsparse-dev librccl-dev librocblas-dev librocfft-dev librocm-smi-dev \
      librocprim-dev librocrand-dev librocsolver-dev librocsparse-dev librocthrust-dev libroctx-dev rocm-cmake \
      rocminfo \
      # toolchain
      binutils ccache cmake dpkg-dev file g++ gcc git libarchive-tools make ninja-build patch pkgconf procps \
      python3.13-dev python3.13-venv xz-utils \
      # PyTorch's third-party libraries
      flatbuffers-compiler-dev libbenchmark-dev libblas-dev libcpp-httplib-dev libcpuinfo-dev libeigen3-dev \
      libflatbuffers-dev libfmt-dev libfp16-dev libfxdiv-dev libgloo-dev liblapack-dev libnuma-dev libonnx-dev \
      libprotobuf-dev libpsimd-dev libpthreadpool-dev libsleef-dev libtensorpipe-dev nlohmann-json3-dev \
      protobuf-compiler pybind11-dev > /dev/null && \
    apt-get clean && rm -rf /var/lib/apt/lists/* /var/cache/ldconfig/* /var/log/apt /var/log/dpkg.log

# --- the image ----------------------------------------------------------------------------------------------------------

FROM rocm
COPY --from=cpython /opt/cpython /opt/cpython
COPY tools-requirements.txt build-requirements.txt /opt/rocm-wheels/
# Every Python is a virtual environment: one place for packages, whatever layout its base was built with.
RUN --mount=type=secret,id=ca_bundle \
    set -eu; \
    if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi; \
    export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_PROGRESS_BAR=off; \
    python3.13 -m venv /opt/tools; \
    /opt/tools/bin/pip install -q --require-hashes --only-binary :all: -r /opt/rocm-wheels/tools-requirements.txt; \
    for version in 3.11 3.13 3.14; do \
      base=/opt/cpython/$version/bin/python$version; \
      [ -x "$base" ] || base=/usr/bin/python$version; \
      "$base" -m venv --without-pip /opt/python/$version; \
      /opt/tools/bin/pip --python /opt/python/$version/bin/python install -q --require-hashes --only-binary :all: \
        -r /opt/rocm-wheels/build-requirements.txt; \
      /opt/python/$version/bin/python -c 'import ctypes, lzma, numpy, sqlite3, ssl, yaml, zlib'; \
    done; \
    cat /opt/cpython/*/packages.tsv > /opt/rocm-wheels/cpython.tsv; \
    dpkg-query -W -f '${Package}\t${Version}\t${Architecture}\n' > /opt/rocm-wheels/packages.tsv; \
    hipcc --version > /dev/null
ENV PATH=/opt/tools/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /work
CMD ["bash"]
