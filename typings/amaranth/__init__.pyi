"""The part of Amaranth's API that the accelerator's hardware uses, typed (its own types are partial)."""
