"""What running on Spark takes beside `spark_batch`: the session, events, files, statistics, and what a task does."""
