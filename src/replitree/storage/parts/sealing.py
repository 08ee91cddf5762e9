"""Parts of earlier versions: their manifest has no checksum, so its statistics are taken from the rows before it gets one.

`sealed_manifest` reads the key columns of every data file.  The caller has verified the files' own checksums, and that the
content hash is the one with which the part is registered.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa

from replitree.errors import CorruptPart
from replitree.storage.parts.manifest import ColumnStats, PartManifest
from replitree.storage.parts.statistics import StatisticsCollector
from replitree.storage.schema.types import parse_type

BATCH_ROWS = 131_072


def sealed_manifest(folder: Path, manifest: PartManifest) -> PartManifest:
    """Return the manifest of a part with statistics that were taken from its rows, in the format that has a checksum.

    Parameters
    ----------
    folder
        Where all data files of the part are, verified.

    Raises
    ------
    CorruptPart
        The files do not have the columns or the number of rows that the manifest says.
    """
    import pyarrow.parquet as pq

    collectors = {name: StatisticsCollector() for name in manifest.columns}
    try:
        kinds = {name: parse_type(stats.type) for name, stats in manifest.columns.items()}
        for entry in manifest.files:
            with pq.ParquetFile(folder / entry.name) as file:
                if file.metadata.num_rows != entry.rows:
                    raise CorruptPart(f"{entry.name} in {folder} has {file.metadata.num_rows} rows, not {entry.rows}")
                for batch in file.iter_batches(BATCH_ROWS, columns=list(kinds)) if kinds else ():
                    table = pa.Table.from_batches([batch])
                    for name, collector in collectors.items():
                        collector.update(table.column(name).cast(kinds[name]))
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise CorruptPart(
            f"the manifest in {folder} does not fit its data files ({error}); fetch the part again"
        ) from error
    columns: dict[str, ColumnStats] = {name: each.stats(kinds[name]) for name, each in collectors.items()}
    return msgspec.structs.replace(manifest, columns=columns).sealed()
