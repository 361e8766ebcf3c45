"""Dawn in node on a software adapter: Chromium's SwiftShader, because Dawn does not accept Mesa's."""

from __future__ import annotations

import tempfile
from pathlib import Path

from webnorm.web import tint

# The path of SwiftShader in Debian's package chromium.
SWIFTSHADER = Path("/usr/lib/chromium/vk_swiftshader_icd.json")
ENVIRONMENT = {
    "VK_DRIVER_FILES": str(SWIFTSHADER),
    # Dawn also needs a Vulkan loader, and Chromium has one.
    "LD_LIBRARY_PATH": str(SWIFTSHADER.parent),
    "XDG_RUNTIME_DIR": tempfile.gettempdir(),
}


def missing() -> str | None:
    """Return the reason why Dawn cannot run, and how to fix it."""
    if not SWIFTSHADER.exists():
        return f"no adapter for node: install chromium, which brings {SWIFTSHADER}"
    return tint.tint_unavailable()
