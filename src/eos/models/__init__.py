"""Models: the only place that imports transformers' models or touches a hook.

They expose a decoder layer by layer and know nothing of reduction.
"""
