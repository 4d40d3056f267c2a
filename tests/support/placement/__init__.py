"""What placement must do, written apart from the planner: machines by hand, invariants of every plan, random cases."""
