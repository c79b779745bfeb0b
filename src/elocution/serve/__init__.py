"""Servers: rewards over KServe v2."""
