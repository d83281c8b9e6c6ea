"""Tables, figures and statistics of results."""
