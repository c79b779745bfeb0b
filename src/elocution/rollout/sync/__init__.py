"""Proven weight synchronisation: from the trainer's policy to an engine that has its own copy of the weights."""
