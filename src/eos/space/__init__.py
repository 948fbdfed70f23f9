"""The search space Θ, the plan with its steps, and what both cost: tokens, FLOPs, KV bytes."""
