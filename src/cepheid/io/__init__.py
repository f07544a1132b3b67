"""Inputs and outputs: sources of events, file formats, rejects, sinks."""
