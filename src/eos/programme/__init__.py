"""Programme: the paper's experiments in pieces, each a file that is made once and resumed."""
