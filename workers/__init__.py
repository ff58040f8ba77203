"""The distribution: what runs in other processes. The only place that imports ray."""
