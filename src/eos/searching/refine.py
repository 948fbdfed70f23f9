"""Refine: stub."""
def refine(found, **kwargs):
    """Nothing yet."""
    return found
