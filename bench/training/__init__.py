"""What bench/train.py trains: models, how gradients cross the ranks, and the side of one rank."""
