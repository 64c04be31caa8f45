"""Models that are written otherwise and say the same: their results have the same bits.

``changes``: what may be written otherwise, as functions of a model. Each takes a source of chance and returns a copy.
"""
