"""NFA^b runs (SASE+)."""
