from amaranth.hdl import Elaboratable, Signal

class SyncFIFOBuffered(Elaboratable):
    def __init__(self, *, width: int, depth: int) -> None: ...
    w_data: Signal
    w_rdy: Signal
    w_en: Signal
    r_data: Signal
    r_rdy: Signal
    r_en: Signal
