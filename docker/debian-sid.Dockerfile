# Builder image: ROCm 6.4 with MIOpen and hipBLASLt from Debian's unstable suite, CPython 3.13 and 3.14.
# unstable moves: what was installed is in /opt/rocm-wheels/packages.tsv. Everything else as in debian-trixie.

FROM docker.io/library/debian:sid
ENV DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
COPY install.sh packages/debian.txt packages/debian-sid.txt /usr/local/src/
RUN sh /usr/local/src/install.sh --stale-ok debian.txt debian-sid.txt
COPY pythons.sh tools-requirements.txt build-requirements.txt /opt/rocm-wheels/
RUN --mount=type=secret,id=ca_bundle sh /opt/rocm-wheels/pythons.sh 3.13 3.13 3.14
ENV PATH=/opt/tools/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /work
CMD ["bash"]
