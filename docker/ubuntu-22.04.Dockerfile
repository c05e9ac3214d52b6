# Builder image: AMD's ROCm 6.2.4 on Ubuntu 22.04, CPython 3.11. Never built: AMD's repository was not reachable.
# Everything else as in debian-trixie.

FROM docker.io/library/ubuntu:22.04@sha256:965fbcae990b0467ed5657caceaec165018ef44a4d2d46c7cdea80a9dff0d1ea
ARG ROCM=6.2.4
ENV DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
COPY install.sh packages/amd-key.txt /usr/local/src/
RUN sh /usr/local/src/install.sh amd-key.txt
COPY trusted-key.sh amd-repository.sh packages/rocm-amd.txt packages/ubuntu-22.04.txt /usr/local/src/
RUN sh /usr/local/src/amd-repository.sh "$ROCM" && sh /usr/local/src/install.sh rocm-amd.txt ubuntu-22.04.txt
COPY pythons.sh toolchain.sh tools-requirements.txt toolchain-requirements.txt build-requirements.txt /opt/rocm-wheels/
ENV PATH=/opt/tools/bin:/opt/rocm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
RUN --mount=type=secret,id=ca_bundle sh /opt/rocm-wheels/pythons.sh 3.11 3.11 && sh /opt/rocm-wheels/toolchain.sh
WORKDIR /work
CMD ["bash"]
