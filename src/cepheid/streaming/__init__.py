"""Streams without Spark: buckets, state, packing, plan."""
