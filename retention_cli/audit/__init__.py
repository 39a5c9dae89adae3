"""What each trim did, as lines chained by hash, and the lock that one trim holds at a time."""
