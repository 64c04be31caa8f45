"""Sixteen programs that no rule and no template of the compiler names: `python -m benchmarks.unseen`.

What a compiler does with what it was not written for: its analytic choice, the best of what a search over derived
spaces (`tilewright.sketch`) finds in some minutes, PyTorch and torch.compile, in turns on the same data.

programs.py    the programs as tensor expressions, with their sizes; the place to add one
in_numpy.py    the same functions in NumPy, which say what is right
in_torch.py    the same functions in PyTorch; the only module that needs torch
candidates.py  how the compiler schedules a program, and what the processes time
__main__.py    the contest, its JSON file and its table
"""
