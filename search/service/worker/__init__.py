"""Workers of a search elsewhere: they ask a server for trials, and train them as local ones do."""
