"""What a trial runs."""
