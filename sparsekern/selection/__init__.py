"""What `select` goes by: the candidates, the features of a problem, and a tree from these to those."""
