"""Models of one side of text: how a text goes on, what a mask stands for, what class a line is of, how likely it is."""
