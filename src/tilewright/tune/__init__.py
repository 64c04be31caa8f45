"""Which schedule for this kernel on this target? Found by search with a learned model of costs and measurements.

The system of Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018). A ``Space`` (``space``) is what is
searched; a ``TemplateSpace`` (``template``) is one that a user's function defines, out of ``knobs`` and ``orders``; a
``Searcher`` (``search``) proposes candidates. A new kind of knob is one function of ``knobs`` and one method of
``Config``.
"""
