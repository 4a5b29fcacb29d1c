"""What may be claimed, and which setting is the answer: proof, verdict, solver, Pareto set."""
