"""Worker processes: payment work, ledger, and the partition assignor of the consumer group."""
