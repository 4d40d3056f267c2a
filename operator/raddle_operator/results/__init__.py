"""What a tuning's result is: for what it holds, who won, by how much, and how it is told. Pure.

The tuner makes it, a tuning's status keeps it, the webhook plans with it.
"""
