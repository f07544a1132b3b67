"""What a stream takes beside `spark_stream`: how events come in, wait, are matched in buckets, saved and given out."""
