"""Judges: how a case becomes a question to a model, and its answer a number; pure."""
