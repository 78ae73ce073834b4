"""One module for each format on disk.

In: directories that `artifacts.manifest` has checked. Out: arrays and tries, memory-mapped. `docs/formats.md`
says every byte.
"""
