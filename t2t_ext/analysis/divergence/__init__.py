"""How far local and global attention are apart in dual contextual modules."""
