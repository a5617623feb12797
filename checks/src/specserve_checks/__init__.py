"""Values from outside, read into msgspec Structs: what is wrong with one, in words."""
