"""A process that maps HIP libraries and says which one the product would use.

    python -m tests.devices.hip.process PATH...

Prints JSON: {"used": path or null, "error": text, "mapped": [paths of all loaded libraries]}.
"""

from __future__ import annotations

import ctypes
import json
import sys

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.library import mapped_library, mapped_paths


def main(paths: list[str]) -> None:
    for path in paths:
        ctypes.CDLL(path)
    used, error = None, ""
    try:
        library = mapped_library()
        used = library.path
        library.device_count()
    except DeviceError as refusal:
        error = str(refusal)
    print(json.dumps({"used": used, "error": error, "mapped": mapped_paths()}))


if __name__ == "__main__":
    main(sys.argv[1:])
