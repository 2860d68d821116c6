"""What a model does inside: attention to look at, gradient norms of its layers; ``t2t_ext-analyze`` shows them."""
