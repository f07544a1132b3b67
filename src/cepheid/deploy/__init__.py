"""Many queries over one input: what they have in common runs once (NEXT §4.4)."""
