"""Commands: the verbs of `eos`, one file each: arguments, what is run, what is printed and written.

Importing them is cheap, so that help is instant: torch and what needs it is imported in functions.
"""
