# Builder image: ROCm 5.2 from Debian 12, CPython 3.11. Compiles HIP extensions; PyTorch needs libraries it lacks.
# Everything else as in debian-trixie.

FROM docker.io/library/debian:bookworm
ENV DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
COPY install.sh packages/debian-bookworm.txt /usr/local/src/
RUN sh /usr/local/src/install.sh debian-bookworm.txt
COPY pythons.sh toolchain.sh tools-requirements.txt toolchain-requirements.txt build-requirements.txt /opt/rocm-wheels/
RUN --mount=type=secret,id=ca_bundle sh /opt/rocm-wheels/pythons.sh 3.11 3.11 && sh /opt/rocm-wheels/toolchain.sh
ENV PATH=/opt/tools/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /work
CMD ["bash"]
