"""The Ray backend: Ray Tune runs the trials, on this machine or a cluster. Importing this loads no Ray."""
