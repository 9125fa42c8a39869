"""What the SQL stores share for dumping, loading and closing a store."""
