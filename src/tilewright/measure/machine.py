"""What the system says of the machine while it measures."""

import os
from pathlib import Path


def machine_state(root: Path = Path("/sys")) -> dict[str, float]:
    """Load, and frequency and temperature if the system reports them."""
    found = {"load": os.getloadavg()[0]}
    files = {"mhz": ("devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", 1e-3)}
    files["celsius"] = ("class/thermal/thermal_zone0/temp", 1e-3)
    for name, (path, unit) in files.items():
        try:
            found[name] = float((root / path).read_text()) * unit
        except (OSError, ValueError):
            continue
    return found
