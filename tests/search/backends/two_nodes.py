"""A Ray cluster of two nodes on this machine; told what to do by lines on its standard input.

`kill` takes the youngest node away without a word; `add NAME=VALUE` adds one with that in its environment.
Ends with its input.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1)]
cluster.wait_for_nodes()
print(cluster.address, flush=True)
for line in sys.stdin:
    verb, *words = line.split()
    if verb == "kill":
        cluster.remove_node(nodes.pop(), allow_graceful=False)
    else:
        nodes.append(cluster.add_node(num_cpus=1, env_vars=dict(word.split("=") for word in words)))
        cluster.wait_for_nodes()
    print("done", flush=True)
cluster.shutdown()  # type: ignore[no-untyped-call]
