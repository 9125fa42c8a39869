"""Backups and moving: everything in a store as a file, a file as a store, and one store as another.

`export_store` writes what a store contains, `import_file` loads it into an empty store, and `copy_store` moves a
cluster to another store while it works. `duly export`, `duly import` and `duly copy` call them.
"""

from duly.moving.copying import Copied, copy_store, finish_copy, reopen_store
from duly.moving.exporting import Exported, export_store
from duly.moving.file_format import InvalidExport
from duly.moving.importing import Imported, import_file

__all__ = [
    "Copied",
    "Exported",
    "Imported",
    "InvalidExport",
    "copy_store",
    "export_store",
    "finish_copy",
    "import_file",
    "reopen_store",
]
