"""Reports: pure functions of a job's journal and manifest."""
