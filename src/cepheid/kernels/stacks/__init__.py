"""Sequences by active instance stacks (SASE)."""
