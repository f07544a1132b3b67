"""Spark, batch and streaming: the only package that imports pyspark."""
