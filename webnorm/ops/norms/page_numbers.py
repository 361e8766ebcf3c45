"""Numbers that pages share with the norms in Python; the reasons stand where they are defined."""

from __future__ import annotations

from webnorm.ops.norms import op, reference, tolerance

NUMBERS = {
    name: getattr(module, name)
    for module, names in {
        reference: ("SMALLEST_ROW_MAXIMUM", "INT8_MAXIMUM", "MEAN_DIGITS"),
        tolerance: (
            "UNIT_ROUNDOFF",
            "HI_LO_TOLERANCE",
            "SERIAL_TERMS",
            "ROUNDED_MEAN_FACTOR",
            "GRADIENT_FACTOR",
            "EQUAL_SHARE",
        ),
        op: ("SUM_TOLERANCE", "LOW_WORD"),
    }.items()
    for name in names
}
