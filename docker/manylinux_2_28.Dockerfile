# Builder image: AMD's ROCm 6.2.4 on AlmaLinux 8 (manylinux_2_28), the CPythons of the base. Never built: AMD's
# repository was not reachable. The base is the one that ROCm/TheRock's dockerfiles pin.

FROM quay.io/pypa/manylinux_2_28_x86_64@sha256:d632b5e68ab39e59e128dcf0e59e438b26f122d7f2d45f3eea69ffd2877ab017
ARG ROCM=6.2.4
ENV LC_ALL=C.UTF-8
COPY install-rpm.sh trusted-key.sh amd-repository.sh packages/rocm-amd.txt packages/manylinux_2_28.txt /usr/local/src/
RUN sh /usr/local/src/amd-repository.sh "$ROCM" && sh /usr/local/src/install-rpm.sh rocm-amd.txt manylinux_2_28.txt
COPY pythons.sh toolchain.sh tools-requirements.txt toolchain-requirements.txt build-requirements.txt /opt/rocm-wheels/
ENV PATH=/opt/tools/bin:/opt/rocm/bin:$PATH
RUN --mount=type=secret,id=ca_bundle sh /opt/rocm-wheels/pythons.sh 3.13 3.11 3.12 3.13 && sh /opt/rocm-wheels/toolchain.sh
WORKDIR /work
CMD ["bash"]
