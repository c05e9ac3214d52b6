"""Checks that read the wheel and load nothing, one module per group; each takes a subject and yields findings."""
