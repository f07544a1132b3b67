"""Prepares a query for its input and runs it."""
