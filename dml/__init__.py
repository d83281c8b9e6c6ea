"""Deep metric learning, compared fairly: losses, methods, protocols and retrieval evaluation."""
