"""Detects events across sources: asks them step by step, and detects behind what they have answered."""
