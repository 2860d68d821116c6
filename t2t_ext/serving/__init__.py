"""SavedModels for TensorFlow Serving, and clients of its servers."""
