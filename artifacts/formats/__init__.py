"""One module for each format on disk.

In: directories that `artifacts.manifest` has checked. Out: arrays and tries, memory-mapped. `docs/formats.md`
says every byte.
"""

READERS = {
    "spectool-dictionary": "spectool.artifacts.formats.dictionary:Dictionary",
    "spectool-alignment": "spectool.artifacts.formats.alignment:Alignment",
    "spectool-counts": "spectool.artifacts.formats.counts:Counts",
    "spectool-benchmark": "spectool.artifacts.formats.benchmark:Benchmark",
    "spectool-fairness": "spectool.artifacts.formats.fairness:Fairness",
}
"""What opens each format, imported when it is needed (`pkgutil.resolve_name`)."""
