"""Models: the only place that imports transformers' models or touches a hook.

They expose a decoder layer by layer; nothing here depends on scoring or reduction.
"""
