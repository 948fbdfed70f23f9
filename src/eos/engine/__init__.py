"""The engine: one forward pass of a backbone under a plan or Θ. Reduction and models meet here."""
