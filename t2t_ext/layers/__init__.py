"""layers of t2t_ext."""
