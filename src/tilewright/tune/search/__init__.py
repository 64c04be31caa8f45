"""Searchers: which candidates of a space to measure next.

Enters: a ``Searchable`` space, a seed, and what was measured so far. Leaves: batches of candidates, none of them twice.
A searcher has ``propose`` and ``learn`` (``searcher.Searcher``); a new one is one file, with a ``Ledger`` for what is
the same in all of them. ::

    searcher = GeneticSearcher(space, seed=0)
    while len(batch := searcher.propose(64)):
        searcher.learn(batch, measure(batch))
"""
