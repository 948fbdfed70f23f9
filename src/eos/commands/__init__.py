"""Commands: what the verbs of the command line run, one file each. They print and write files."""
