"""Benchmarks: peers and Tilewright, run in turns, reported as ratios. Run them as modules, from the repository's root.

harness.py     slots in ABAB order, medians, ratios with quartiles; knows nothing of models
processes.py   a candidate in its own process, quiet and with a fixed number of threads
worker.py      the other end: `python -m benchmarks.worker`, which builds a candidate and runs its slots
candidates.py  how each peer runs an ONNX file; the place to add a peer
contest.py     a model and its exact answers, run by all peers in turns: rows
results.py     rows as a JSON file
tables.py      rows as Markdown
pictures.py    rows as SVG
document.py    both into docs/performance.md and docs/appendix: `python -m benchmarks.document`
accuracy.py    the two error measures, and the scale that weights must have for them
work.py        operations and bytes of a model, and the roofline that no run can break
peak.py        floating-point peak of this machine, to be run next to a kernel
compilation.py how long Tilewright compiles, cold and warm, and loads its artifact
mathkernel.py  one function of vector math as a native loop over arrays
vecmath.py     vector math next to NumPy and SciPy: `python -m benchmarks.vecmath`
zoo/           seventeen networks as ONNX files: `python -m benchmarks.zoo`
networks.py    the zoo by all peers: `python -m benchmarks.networks`
operators.py   single operators and subgraphs by all peers: `python -m benchmarks.operators`
operator_models.py   the table of them, as ONNX models
operator_modules.py  the same models as PyTorch modules
choices.py     the model's schedules against the best of many measured ones: `python -m benchmarks.choices`
simulated.py   the same in simulated cycles of ARM cores: `python -m benchmarks.simulated`
scheduling.py  schedulers of tasks, replayed in the tables of the ablation: `python -m benchmarks.scheduling`
searched.py    operators and networks before and after a search, by all peers: `python -m benchmarks.searched`
metaschedule.py   a network tuned by TVM, and by Tilewright in less time: `python -m benchmarks.metaschedule`
cost_model/    what is learned from records of two networks, and how well: `python -m benchmarks.cost_model`
scoring.py     candidates that are rated a second: `python -m benchmarks.scoring`
planted/       graphs with redundant work, rewritten by a person and by the search: `python -m benchmarks.planted`
superopt/      what searches gain, and how true their costs are: `python -m benchmarks.superopt networks`, `... costs`
unseen/        sixteen programs that no template names, searched and by PyTorch: `python -m benchmarks.unseen`
cases.py       random single operators by the fastest peers, sorted by loss: `python -m benchmarks.cases`
case_families.py   what draws them
odd_shapes.py  what the zoo's contractions keep of their rate with one more of each: `python -m benchmarks.odd_shapes`
serving.py     an artifact's start, and many threads on one model: `python -m benchmarks.serving`
service.py     how long clients of the service wait while it compiles: `python -m benchmarks.service`
minilm.py      MiniLM-L6 at 16 and 128 tokens, 1 and 2 threads: `python -m benchmarks.minilm`
architectures.py   networks of PyTorch: the list
exports.py     what Tilewright makes of them: `python -m benchmarks.exports`
export_ways.py the ways from a network to a compiled model, and what is compared
export_tables.py   what came of them, as Markdown
"""
