"""A process that maps HIP libraries and says which one the product would use.

    python -m tests.devices.hip.process PATH... [--user LIBRARY]

`--user`: what stands for torch's extension, mapped last; without it torch's own. Prints JSON:
{"used": path or null, "source": who brought it, "error": text, "runtimes": [HIP runtimes],
"mapped": [paths of all mapped files]}.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from hk_backend.devices.base import DeviceError
from hk_backend.devices.hip.library import mapped_library, mapped_runtimes, source


def main(paths: list[str]) -> None:
    user = paths[paths.index("--user") + 1] if "--user" in paths else ""
    for path in paths:
        if path != "--user":
            ctypes.CDLL(path)
    used, error = None, ""
    try:
        library = mapped_library(user) if user else mapped_library()
        used = library.path
        library.device_count()
    except DeviceError as refusal:
        error = str(refusal)
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = sorted({line.split()[-1] for line in lines if "/" in line})
    answer = {"used": used, "error": error, "mapped": mapped, "runtimes": mapped_runtimes()}
    print(json.dumps({**answer, "source": source(used or "")}))


if __name__ == "__main__":
    main(sys.argv[1:])
