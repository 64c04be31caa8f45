"""Which schedule for this kernel on this target? Found by search with a learned model of costs and measurements.

The system of Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018).
"""
