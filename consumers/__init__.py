"""Worker processes: the payment work, the ledger, and the partition assignor inside the consumer group."""
