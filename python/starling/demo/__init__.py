"""Demonstrations: ``starling demo train`` and ``starling demo deadlock``."""
