"""Build, repair, judge and hand out PyTorch wheels for AMD ROCm.

The stages stand in a row, ``release → source → build → repair → verify → publish``, over the foundations
``wheel``, ``elf``, ``gpu``, ``errors``, ``config`` and ``console``. A stage imports foundations and the release
data, never a later stage.
"""
