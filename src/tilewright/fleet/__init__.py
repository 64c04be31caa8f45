"""Devices elsewhere: a queue of machines that are leased, and measure what they are sent.

In: jobs (``measure``) and artifacts, a device's key, a priority. Out: outcomes and results, from whatever device of
that key was free. Dask distributed carries it all; nothing here opens a socket.

    access = Access(Address.parse("tls://10.0.0.1:8790"), Path("keys/ann"))
    with Fleet.connect(access) as fleet, FleetRunner(fleet, "rpi4") as runner:
        for job, outcome in runner.measure_all(jobs): ...

    access        an address, and the certificates that it takes     certificates    makes these
    leases        who may use which device, and until when            scheduler       serves that (``fleet serve``)
    inventory     what a device says of itself                        device, join    the machine that is leased
    connection    to the scheduler, again after it was gone           fleet           requests, leases, calls
    runner        measures many jobs, as ``measure.Runner`` does      remote          runs whole models
    model_child   the process in which these run                      arrays          arrays as bytes
    ways          by which processes: of this machine, of an emulator (simulated_models), behind an agent (agent_models)
    foreign       artifacts that do not run in the process that reads them
    accelerator   the accelerator of a device, as a driver            board           what simulates it there

A new thing that a device can do is a ``Verb`` and a branch in ``device``; a new kind of device is a ``Way``.
``docs/fleet.md`` shows all of it in use.
"""
