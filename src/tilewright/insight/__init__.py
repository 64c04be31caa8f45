"""Reports on compiled models: time of kernels, results of optimization, numerical differences.

In: a compiled model (``driver.Compiled``) and inputs. Out: plain data (frozen dataclasses) that print as tables
(``show``) and turn into JSON.

    profile    time of each kernel, beside its work and the peak of the machine (probes, peak)
        explain    the kernel of each node, the schedule of each kernel, and missed optimizations with reasons
        compare    comparison of all values of the model with a reference
        doctor     this machine and this installation: facts, measured roofs, noise, warnings with remedies
        repro      a model or a kernel with versions and settings in one file, to be run again by `tilewright rerun`

A new report is a file here, a verb in ``cli`` and a method of ``api.CompiledModel`` if it needs a model.
"""
