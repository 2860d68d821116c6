"""The divergence of local and global attention in dual contextual modules."""
