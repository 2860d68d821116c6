"""data of t2t_ext."""
