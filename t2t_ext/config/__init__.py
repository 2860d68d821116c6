"""Typed, strictly checked settings that record the origin of every value, among them every model's hyper-parameters."""
