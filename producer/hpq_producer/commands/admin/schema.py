"""`hpq schema`."""

from __future__ import annotations

import json

from hpq_producer.sweepfile.json_schema import json_schema


def schema() -> None:
    """Print the JSON Schema of sweep files, for editors.

    Example: hpq schema > sweep.schema.json
    """
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
