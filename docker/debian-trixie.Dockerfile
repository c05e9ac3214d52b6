# Builder image: ROCm 5.7 from Debian's archive, its toolchain, and CPython 3.11, 3.13 and 3.14.
# No /dev/kfd, no root at run time, no address of a mirror or an index: apt uses what the base image came with.
# Secret `ca_bundle` (optional): CA certificates for pip on networks that intercept TLS; never stored in a layer.

FROM docker.io/library/debian:trixie AS base
ENV DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
COPY install.sh packages/cpython.txt /usr/local/src/
RUN sh /usr/local/src/install.sh cpython.txt

# The two CPythons that trixie does not have, from the suites that do.
FROM base AS cpython
COPY unpack-python.sh /usr/local/src/
RUN sh /usr/local/src/unpack-python.sh 3.11 bookworm 3.11.2-6+deb12u6 && \
    sh /usr/local/src/unpack-python.sh 3.14 forky 3.14.8-1 stale-ok

FROM base
COPY packages/debian.txt packages/debian-trixie.txt /usr/local/src/
RUN sh /usr/local/src/install.sh debian.txt debian-trixie.txt
COPY --from=cpython /opt/cpython /opt/cpython
COPY pythons.sh tools-requirements.txt build-requirements.txt /opt/rocm-wheels/
RUN --mount=type=secret,id=ca_bundle sh /opt/rocm-wheels/pythons.sh 3.13 3.11 3.13 3.14
ENV PATH=/opt/tools/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /work
CMD ["bash"]
