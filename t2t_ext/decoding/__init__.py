"""decoding of t2t_ext."""
