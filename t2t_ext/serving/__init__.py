"""serving of t2t_ext."""
