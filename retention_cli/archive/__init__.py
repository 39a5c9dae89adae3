"""Archives: copy records to Parquet before they are trimmed, verify the copies, and restore them.

Nothing here deletes anything, in a cluster or in an archive.
"""
