"""What `select` goes by: the candidates, the features of a problem, and what those cost on recorded ones."""
