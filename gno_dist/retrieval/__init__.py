"""Retrieval as pure steps: chunk, fuse, blend, expand; what talks to models is in backends."""
