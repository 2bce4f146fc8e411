"""Models of one side: their families, how a text goes on, what a mask stands for, a line's class, how likely it is."""
