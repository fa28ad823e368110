"""Replicas with Ray Serve."""
