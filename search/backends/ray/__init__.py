"""The Ray backend: Ray Tune runs the trials, on this machine or a cluster. This loads no Ray by itself."""
