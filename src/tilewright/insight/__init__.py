"""What a compiled model says about itself: where its time goes, what was done to it, where its numbers differ.

In: a compiled model (``driver.Compiled``) and inputs. Out: plain data (frozen dataclasses) that print as tables
(``show``) and turn into JSON.

    profile    time of each kernel, beside the work that it needs and what the machine can do (probes, peak)
    explain    what became of every node, how each kernel is scheduled, what was left undone and why
    compare    every value of the model beside a reference: the first that differs
    doctor     this machine and this installation: facts, measured roofs, noise, warnings with remedies
    repro      a model or a kernel with versions and settings as one file, and a script that reruns it

A new report is a file here, a verb in ``cli`` and a method of ``api.CompiledModel`` if it needs a model.
"""
