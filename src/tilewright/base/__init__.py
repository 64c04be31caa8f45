"""Layer 0: utilities for all other layers: errors, dtypes, targets, settings, files, caches. It imports only NumPy.

In: the environment, files of the kernel, texts of users. Out: small frozen values, and errors.

- ``errors``: the kinds of error. ``dtypes``: scalar types. ``arrays``: of any of them, and random ones.
  ``names``: legal and unused names. ``sizes``: ``48K``. ``exact``: keys that tell ``0.0`` from ``-0.0``, and ``1`` from
  ``True``.
- ``target``: what the compiler knows of a processor. A new processor is a line in ``processors``; a new way to see what
  this machine is, ``host``.
- ``settings``: what environment variables say. A new setting is a field of ``Settings``.
  ``printing``: what stages make, printed as settings say.
- ``memory``: how much there is, and what may be taken. ``input_files``: regular files, read without waiting.
- ``files``: files that appear whole. ``outputs``: those that users ask for.
- ``store``: the cache on disk. ``events``: what happens, told to a listener.

    target = Target.parse("x86_64,znver5,cores=8").restricted("avx2")
    target.vector_bits  # 256
    store = Store.open(Settings.from_environment(), listener=to_log(logging.getLogger("tilewright")))
"""
