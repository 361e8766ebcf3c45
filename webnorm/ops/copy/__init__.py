"""The copy op, the roofline next to which every op is timed."""
