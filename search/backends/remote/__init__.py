"""The remote backend: workers anywhere ask for trials, report, and tell how they ended."""
