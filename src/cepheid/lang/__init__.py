"""Text to Query and back, one module for each language."""
