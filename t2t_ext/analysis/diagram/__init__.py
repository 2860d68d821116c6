"""The diagram of a model, as text and as a picture."""
