"""Dawn in node or Python on Chromium's software adapter, SwiftShader, because Dawn does not accept Mesa's."""

from __future__ import annotations

import tempfile
from pathlib import Path

from webnorm.gpu.backend_names import dawn_version
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
    """Return the reason why Dawn in node cannot run, and how to fix it."""
    return _no_driver() or tint.tint_unavailable()


def missing_in_python() -> str | None:
    """Return the reason why Dawn in Python cannot run, and how to fix it."""
    return _no_driver() or (None if dawn_version() else "wgpudawn is not installed: pip install wgpudawn")


def _no_driver() -> str | None:
    if SWIFTSHADER.exists():
        return None
    return f"no adapter for Dawn: install chromium, which brings {SWIFTSHADER}"
