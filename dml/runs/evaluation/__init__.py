"""`dml evaluate`: scores of stored embeddings, of the network of a run, or of one without a run."""
