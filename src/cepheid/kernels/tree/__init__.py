"""Tree plans (ZStream)."""
