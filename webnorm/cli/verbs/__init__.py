"""The verbs of the webnorm command, one file per verb."""
