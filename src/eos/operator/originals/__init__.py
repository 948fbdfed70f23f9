"""Earlier reduction methods as their authors' code computes them, accidents included.

Written from the algorithms and held to outputs recorded from the original programs. Nothing here
decides where in a model a method acts; each file takes the tensors its method looks at.
"""
