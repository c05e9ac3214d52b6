"""ELF files: reader, layout checks, offload bundles, and (apart from these) editing."""

from rocm_wheels.elf.reader import ElfFile

__all__ = ["ElfFile"]
