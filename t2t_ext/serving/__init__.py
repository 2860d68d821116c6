"""SavedModels for TensorFlow Serving, and clients for its servers."""
