"""Audits, plans, reports, silos and drawn faces: each folder can be deleted."""
