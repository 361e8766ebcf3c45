"""The op qk_norm: queries and keys normalized per head."""
