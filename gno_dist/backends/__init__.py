"""Backends: one file an outside library, each behind the same two-method protocol."""
