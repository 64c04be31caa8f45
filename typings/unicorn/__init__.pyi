"""The part of Unicorn's API that Tilewright uses, typed (its library is called directly)."""
