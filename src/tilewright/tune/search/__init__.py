"""Searchers: which candidates of a space to measure next.

In: a ``Searchable`` space, a seed, and the measurements so far. Out: batches of candidates, without repeats. A searcher
has ``propose`` and ``learn`` (``searcher.Searcher``); a new one is one file, with a ``Ledger`` of taken candidates. ::

    searcher = GeneticSearcher(space, seed=0)
    while len(batch := searcher.propose(64)):
        searcher.learn(batch, measure(batch))
"""
