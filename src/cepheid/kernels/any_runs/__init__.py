"""Skip till any match with closures."""
