"""Hosts, GPUs, network ports and NUMA nodes, and the rings that follow from them: ``starling topo``."""

from starling.topo.model import Cluster, Device, Host, Node
from starling.topo.rings import Ring, in_leaf_order, rings_of

__all__ = ["Cluster", "Device", "Host", "Node", "Ring", "in_leaf_order", "rings_of"]
