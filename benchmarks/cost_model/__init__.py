"""How good the cost model over statements is, and what it knows beforehand (Zheng et al., OSDI 2020, section 7.4).

    python -m benchmarks.cost_model record --minutes 30 --records build/cost_model.db          wants a quiet machine
    python -m benchmarks.cost_model collect --records build/cost_model.db -o build/cost_model.npz      makes the data
    python -m benchmarks.cost_model evaluate build/cost_model.npz [--document]                 on held-out programs
    python -m benchmarks.cost_model train build/cost_model.npz                           the weights of the package

networks.py  ResNet-50 and MobileNet-V2       tasks.py    their kernels
record.py    candidates, measured             data.py     the data set, one file
quality.py   definitions of the four numbers  train.py    the weights

Needs LightGBM; all but ``record`` compute the same on any machine.
"""
