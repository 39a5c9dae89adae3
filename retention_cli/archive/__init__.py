"""Archives: records in Parquet before they are trimmed, checked against what was read, and restoring them.

Nothing here deletes anything, in a cluster or in an archive.
"""
